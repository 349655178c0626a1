"""Which characters may begin each part of a grammar, and which may follow it.

Knows FIRST and FOLLOW sets of textbook grammars; knows no lexemes. Sets of characters are integers, one bit for each
class of characters that the grammar cannot tell apart. Invariant: the sets may be too large, never too small.
"""

from __future__ import annotations

from bisect import bisect_right

from localrun.constraint.gbnf.checks import is_nullable, nullable_rules
from localrun.constraint.gbnf.syntax import Alt, Chars, CharSet, Grammar, Node, Ref, Repeat, Seq, Token, walk


class Alphabet:
    """Unicode cut at every boundary that the grammar's character sets have."""

    def __init__(self, grammar: Grammar) -> None:
        sets = {n.chars for rule in grammar.rules.values() for n in walk(rule.body) if isinstance(n, Chars)}
        self._starts = sorted({edge for chars in sets for low, high in chars for edge in (low, high + 1)})
        self._masks: dict[CharSet, int] = {}
        self.everything = (1 << (len(self._starts) + 1)) - 1

    def mask(self, chars: CharSet) -> int:
        if chars not in self._masks:
            mask = 0
            for low, high in chars:
                first, last = bisect_right(self._starts, low), bisect_right(self._starts, high)
                mask |= ((1 << (last - first + 1)) - 1) << first
            self._masks[chars] = mask
        return self._masks[chars]


class Contexts:
    """FIRST of every node and FOLLOW of every rule."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.alphabet = Alphabet(grammar)
        self.nullable = nullable_rules(grammar)
        self._first = dict.fromkeys(grammar.rules, 0)
        self.follow = dict.fromkeys(grammar.rules, 0)
        self._settle_first()
        self._settle_follow()

    def is_nullable(self, node: Node) -> bool:
        return is_nullable(node, self.nullable)

    def first(self, node: Node) -> int:
        """The characters that may begin `node`. A token may begin with anything."""
        match node:
            case Chars(chars):
                return self.alphabet.mask(chars)
            case Token():
                return self.alphabet.everything
            case Ref(name):
                return self._first[name]
            case Seq(items):
                return self.first_of_sequence(items, 0)
            case Alt(options):
                mask = 0
                for option in options:
                    mask |= self.first(option)
                return mask
            case Repeat(item, _, high):
                return 0 if high == 0 else self.first(item)

    def first_of_sequence(self, items: tuple[Node, ...], follow: int) -> int:
        """The characters that may begin `items` followed by anything of `follow`."""
        mask = 0
        for item in items:
            mask |= self.first(item)
            if not self.is_nullable(item):
                return mask
        return mask | follow

    def inside(self, node: Node, follow: int) -> list[tuple[Node, int]]:
        """The direct parts of `node` with what may follow each of them, where `follow` may follow the whole."""
        match node:
            case Seq(items):
                return [(item, self.first_of_sequence(items[i + 1 :], follow)) for i, item in enumerate(items)]
            case Alt(options):
                return [(option, follow) for option in options]
            case Repeat(item, _, high):
                again = 0 if high in (0, 1) else self.first(item)
                return [(item, follow | again)]
            case _:
                return []

    def _settle_first(self) -> None:
        users: dict[str, set[str]] = {name: set() for name in self.grammar.rules}
        for rule in self.grammar.rules.values():
            for node in walk(rule.body):
                if isinstance(node, Ref):
                    users[node.name].add(rule.name)
        todo = list(self.grammar.rules)
        while todo:
            name = todo.pop()
            mask = self.first(self.grammar.rules[name].body)
            if mask != self._first[name]:
                self._first[name] = mask
                todo.extend(users[name])

    def _settle_follow(self) -> None:
        todo = list(self.grammar.rules)
        while todo:
            name = todo.pop()
            inner = [(self.grammar.rules[name].body, self.follow[name])]
            while inner:
                node, follow = inner.pop()
                if isinstance(node, Ref) and follow | self.follow[node.name] != self.follow[node.name]:
                    self.follow[node.name] |= follow
                    todo.append(node.name)
                inner.extend(self.inside(node, follow))
