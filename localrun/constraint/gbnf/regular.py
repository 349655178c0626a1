"""Which parts of a grammar are regular expressions, and what they look like as such.

Knows the syntax tree and Rust's regex syntax. Invariant: the text of a regular part is bounded (`MAX_LEAVES`,
`MAX_NESTING`), whatever the grammar; larger parts are treated as if they were not regular.
"""

from __future__ import annotations

from localrun.constraint.gbnf.syntax import (
    ANY_CHAR,
    EMPTY,
    Alt,
    Chars,
    CharSet,
    Grammar,
    Node,
    Ref,
    Repeat,
    Rule,
    Seq,
    Token,
    walk,
)

MAX_LEAVES = 2000  # characters and classes in one regular expression
MAX_NESTING = 80  # groups in groups; Rust's regex parser stops at 250


def without_tail_recursion(grammar: Grammar) -> Grammar:
    """Write rules that only repeat themselves at their end (`ws ::= " " ws | ""`) as repetitions.

    An Earley parser keeps an item for each unfinished repetition of a right-recursive rule, so a long run of them is
    slow and hits its limits; a repetition costs nothing.
    """
    return Grammar({name: _as_repetition(rule) for name, rule in grammar.rules.items()})


def _as_repetition(rule: Rule) -> Rule:
    loops: list[Node] = []
    ends: list[Node] = []
    for option in _options(rule.body):
        items = option.items if isinstance(option, Seq) else (option,)
        tail = items[-1] if items else None
        if isinstance(tail, Ref) and tail.name == rule.name:
            option, bucket = Seq(items[:-1]), loops
        else:
            bucket = ends
        if any(isinstance(n, Ref) and n.name == rule.name for n in walk(option)):
            return rule
        bucket.append(option)
    if not loops or not ends:
        return rule
    body = Seq((Repeat(_one_of(loops), 0, None), _one_of(ends)))
    return Rule(rule.name, body, rule.offset)


def _options(node: Node) -> list[Node]:
    """The alternatives of a body, with `(x y)?` seen as `x y | ""`, also where it is the last part of a sequence."""
    match node:
        case Alt(options):
            return [inner for option in options for inner in _options(option)]
        case Repeat(item, 0, 1):
            return [*_options(item), EMPTY]
        case Seq(items) if items and isinstance(items[-1], Alt | Repeat) and len(tails := _options(items[-1])) > 1:
            return [Seq((*items[:-1], *(tail.items if isinstance(tail, Seq) else (tail,)))) for tail in tails]
        case _:
            return [node]


def _one_of(options: list[Node]) -> Node:
    return options[0] if len(options) == 1 else Alt(tuple(options))


class RegularParts:
    """Knows of every rule whether it is regular, and writes regular nodes as regular expressions."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self._sizes: dict[str, tuple[int, int]] = {}  # regular rule: leaves and nesting with all references inlined
        todo = list(grammar.rules)
        users: dict[str, list[str]] = {name: [] for name in grammar.rules}
        for rule in grammar.rules.values():
            for node in walk(rule.body):
                if isinstance(node, Ref):
                    users[node.name].append(rule.name)
        while todo:
            name = todo.pop()
            size = self._size(grammar.rules[name].body) if name not in self._sizes else None
            if size is not None:
                self._sizes[name] = size
                todo.extend(users[name])

    def is_regular(self, node: Node) -> bool:
        return self._size(node) is not None

    def _size(self, node: Node) -> tuple[int, int] | None:
        """(leaves, nesting) of a regular node, None for any other."""
        match node:
            case Chars(chars):
                return (1, 1) if chars else None
            case Token():
                return None
            case Ref(name):
                size = self._sizes.get(name)
                return size and (size[0], size[1] + 1) if size and size[1] < MAX_NESTING else None
            case Repeat(item):
                size = self._size(item)
                return size and (size[0], size[1] + 1)
            case Seq(parts) | Alt(parts):
                leaves, nesting = 0, 0
                for part in parts:
                    size = self._size(part)
                    if size is None:
                        return None
                    leaves, nesting = leaves + size[0], max(nesting, size[1])
                return (leaves, nesting + 1) if leaves <= MAX_LEAVES else None

    def regex(self, node: Node) -> str:
        """The node in Rust's syntax; every character is written as a hexadecimal escape, so nothing needs quoting."""
        match node:
            case Chars(chars):
                return class_regex(chars)
            case Ref(name):
                return f"(?:{self.regex(self.grammar.rules[name].body)})"
            case Seq(items):
                return "".join(self._grouped(item) if isinstance(item, Alt) else self.regex(item) for item in items)
            case Alt(options):
                return "|".join(self.regex(option) for option in options)
            case Repeat(item, low, high):
                return self._grouped(item) + repeat_suffix(low, high)
            case Token():
                raise AssertionError("a token is no regular expression")

    def _grouped(self, node: Node) -> str:
        text = self.regex(node)
        return text if isinstance(node, Chars) else f"(?:{text})"


def repeat_suffix(low: int, high: int | None) -> str:
    """`*`, `+`, `?` or `{m,n}`."""
    simple = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    if (low, high) in simple:
        return simple[low, high]
    return f"{{{low},{'' if high is None else high}}}"


def class_regex(chars: CharSet) -> str:
    """A character set in Rust's syntax."""
    if chars == ANY_CHAR:
        return "(?s:.)"
    if len(chars) == 1 and chars[0][0] == chars[0][1]:
        return rf"\x{{{chars[0][0]:x}}}"
    parts = (rf"\x{{{low:x}}}" + (rf"-\x{{{high:x}}}" if high > low else "") for low, high in chars)
    return f"[{''.join(parts)}]"
