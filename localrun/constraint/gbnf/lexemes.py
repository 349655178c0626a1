"""Cuts a grammar into lexemes that a longest-match lexer cannot get wrong.

llguidance reads output as lexemes (regular expressions, always the longest match) inside a context-free grammar. GBNF
has no lexemes: it is defined on characters. One lexeme for each character is exact but slow; a lexeme for each regular
part is fast but may swallow what should follow it (`[a-z]+ "end"`). So: start with the largest regular parts, find
those that could swallow too much, split them, repeat. Single characters never conflict, so this ends.

Knows syntax, contexts and regular parts; knows nothing of llguidance's notation. Invariant: if a lexeme is complete
after a text, and what may follow it begins with the character c, then no lexeme goes on with c after the same text.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from localrun.constraint.gbnf.contexts import Contexts
from localrun.constraint.gbnf.regular import RegularParts
from localrun.constraint.gbnf.syntax import Alt, Chars, Grammar, Node, Ref, Repeat, Seq, Token, walk

_MAX_POSITIONS = 64  # positions of one repetition that are counted out; above, it counts as endless
_MAX_PAIRS = 200_000  # pairs of positions that are looked at before the largest lexeme is split unseen


@dataclass(slots=True)
class _Automaton:
    """Glushkov's automaton of several lexemes side by side: a position is one character of one lexeme."""

    chars: list[int] = field(default_factory=list)  # by position: the characters it takes
    follow: list[int] = field(default_factory=list)  # by position: the set of positions after it
    owner: list[int] = field(default_factory=list)  # by position: the lexeme it belongs to

    def add(self, chars: int, owner: int) -> int:
        self.chars.append(chars)
        self.follow.append(0)
        self.owner.append(owner)
        return 1 << (len(self.chars) - 1)

    def connect(self, sources: int, targets: int) -> None:
        for position in bits(sources):
            self.follow[position] |= targets


def bits(mask: int) -> list[int]:
    """The indices of the set bits."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


@dataclass(slots=True)
class _Lexeme:
    """A regular part that is a lexeme for now."""

    node: Node
    follow: int
    first: int = 0
    last: int = 0


class Lexemes:
    """The decision for each part of a grammar: lexeme, or structure made of smaller parts."""

    def __init__(self, grammar: Grammar, parts: RegularParts, contexts: Contexts) -> None:
        self.grammar = grammar
        self.parts = parts
        self.contexts = contexts
        self._split: set[int] = set()  # ids of nodes that are structure though they are regular
        self._runs: dict[tuple[int, ...], Seq] = {}
        if any(isinstance(n, Token) and n.negated for rule in grammar.rules.values() for n in walk(rule.body)):
            self._split_everything()
        while conflicting := self._conflicts(self._collect()):
            self._split.update(id(node) for node in conflicting)

    def is_lexeme(self, node: Node) -> bool:
        return id(node) not in self._split and self.parts.is_regular(node)

    def items(self, node: Seq) -> list[Node]:
        """The parts of a sequence that is structure; neighbours that make one lexeme together are joined."""
        if id(node) in self._split:
            return list(node.items)
        joined: list[Node] = []
        run: list[Node] = []
        for item in [*node.items, None]:
            if item is not None and self.is_lexeme(item):
                run.append(item)
                continue
            joined.extend(self._join(run))
            run = []
            if item is not None:
                joined.append(item)
        return joined

    def _join(self, run: list[Node]) -> list[Node]:
        if len(run) < 2:
            return run
        key = tuple(id(item) for item in run)
        if key not in self._runs:
            self._runs[key] = Seq(tuple(run))
        joined = self._runs[key]
        return [joined] if self.is_lexeme(joined) else list(run)

    def _split_everything(self) -> None:
        for rule in self.grammar.rules.values():
            self._split.update(id(node) for node in walk(rule.body) if not isinstance(node, Chars))

    def _collect(self) -> list[_Lexeme]:
        """The lexemes in force, with everything that may follow each."""
        found: dict[int, _Lexeme] = {}
        todo_rules, seen = ["root"], {"root"}
        while todo_rules:
            name = todo_rules.pop()
            inner = [(self.grammar.rules[name].body, self.contexts.follow[name])]
            while inner:
                node, follow = inner.pop()
                if self.is_lexeme(node):
                    found.setdefault(id(node), _Lexeme(node, 0)).follow |= follow
                elif isinstance(node, Ref):
                    if node.name not in seen:
                        seen.add(node.name)
                        todo_rules.append(node.name)
                else:
                    shown = Seq(tuple(self.items(node))) if isinstance(node, Seq) else node
                    inner.extend(self.contexts.inside(shown, follow))
        return list(found.values())

    def _conflicts(self, lexemes: list[_Lexeme]) -> list[Node]:
        """The lexemes that could swallow what should follow another (or themselves)."""
        automaton = _Automaton()
        for number, lexeme in enumerate(lexemes):
            _, lexeme.first, lexeme.last = self._positions(automaton, number, lexeme.node)
        together = self._together(automaton, lexemes)
        if together is None:
            largest, size = Counter(automaton.owner).most_common(1)[0]
            return [lexemes[largest].node] if size > 1 else []
        ends = 0
        for lexeme in lexemes:
            ends |= lexeme.last
        conflicting: dict[int, Node] = {}
        for position in bits(ends):
            after = lexemes[automaton.owner[position]].follow
            for other in bits(together[position]):
                if not automaton.chars[position] & automaton.chars[other]:
                    continue
                if any(automaton.chars[target] & after for target in bits(automaton.follow[other])):
                    node = lexemes[automaton.owner[other]].node
                    conflicting[id(node)] = node
        return list(conflicting.values())

    def _together(self, automaton: _Automaton, lexemes: list[_Lexeme]) -> list[int] | None:
        """For each position the positions that one text can reach at the same time; None if that is too much work."""
        start, longer = 0, 0
        for lexeme in lexemes:
            start |= lexeme.first
            if lexeme.first and (lexeme.first != lexeme.last or automaton.follow[lexeme.first.bit_length() - 1]):
                longer |= lexeme.first  # a single character never goes on, so nothing need be compared with it
        together = [0] * len(automaton.chars)
        waiting = dict.fromkeys(bits(start), longer)
        pairs = 0
        while waiting:
            position, others = waiting.popitem()
            fresh = others & ~together[position]
            if not fresh:
                continue
            together[position] |= fresh
            reached = 0
            for other in bits(fresh):
                pairs += 1
                if automaton.chars[position] & automaton.chars[other]:
                    reached |= automaton.follow[other]
            if pairs > _MAX_PAIRS:
                return None
            if reached:
                for target in bits(automaton.follow[position]):
                    waiting[target] = waiting.get(target, 0) | reached
        return together

    def _positions(self, automaton: _Automaton, owner: int, node: Node) -> tuple[bool, int, int]:
        """Add the automaton of `node`; returns whether it may be empty, its first and its last positions."""
        match node:
            case Chars(chars):
                position = automaton.add(self.contexts.alphabet.mask(chars), owner)
                return False, position, position
            case Ref(name):
                return self._positions(automaton, owner, self.grammar.rules[name].body)
            case Alt(options):
                return _either([self._positions(automaton, owner, option) for option in options])
            case Seq(items):
                return self._sequence(automaton, owner, items)
            case Repeat(item, low, high):
                return self._repetition(automaton, owner, item, low, high)
            case Token():
                raise AssertionError("a token is no regular expression")

    def _sequence(self, automaton: _Automaton, owner: int, items: tuple[Node, ...]) -> tuple[bool, int, int]:
        empty, first, last = True, 0, 0
        for item in items:
            item_empty, item_first, item_last = self._positions(automaton, owner, item)
            automaton.connect(last, item_first)
            first |= item_first if empty else 0
            last = item_last | (last if item_empty else 0)
            empty = empty and item_empty
        return empty, first, last

    def _repetition(
        self, automaton: _Automaton, owner: int, item: Node, low: int, high: int | None
    ) -> tuple[bool, int, int]:
        if high == 0:
            return True, 0, 0
        before = len(automaton.chars)
        empty, first, last = self._positions(automaton, owner, item)
        size = len(automaton.chars) - before
        if high is None or size * high > _MAX_POSITIONS:
            automaton.connect(last, first)  # as if endless: the sets may be too large, never too small
            return empty or low == 0, first, last
        whole_first, whole_last, at_least = first, last, [last]
        for _ in range(high - 1):
            _, next_first, next_last = self._positions(automaton, owner, item)
            automaton.connect(at_least[-1] | (whole_last if empty else 0), next_first)
            whole_first |= next_first if empty else 0
            at_least.append(next_last)
            whole_last |= next_last
        ends = whole_last if empty else 0
        for count, positions in enumerate(at_least, start=1):
            ends |= positions if count >= low else 0
        return empty or low == 0, whole_first, ends


def _either(parts: list[tuple[bool, int, int]]) -> tuple[bool, int, int]:
    empty, first, last = False, 0, 0
    for part_empty, part_first, part_last in parts:
        empty, first, last = empty or part_empty, first | part_first, last | part_last
    return empty, first, last
