"""Writes a checked GBNF grammar in llguidance's notation.

Knows both notations. Invariant: the written grammar accepts exactly the texts that the GBNF grammar derives; its rules
nest at most `MAX_RULE_DEPTH` deep, since llguidance's compiler recurses over them on the stack.
"""

from __future__ import annotations

from collections.abc import Callable

from localrun.constraint.gbnf.checks import references
from localrun.constraint.gbnf.contexts import Contexts
from localrun.constraint.gbnf.lexemes import Lexemes
from localrun.constraint.gbnf.regular import RegularParts, repeat_suffix, without_tail_recursion
from localrun.constraint.gbnf.syntax import Alt, Chars, Grammar, Node, Ref, Repeat, Seq, Token
from localrun.constraint.source_text import SourceText

MAX_RULE_DEPTH = 1000
"""Rules inside rules. llguidance 1.9 needs about 3 KB of stack for each."""

TokenResolver = Callable[[Token], int]
"""The id of a token reference. Raises `ConstraintError` if the vocabulary has no such token."""


class _Writer:
    def __init__(self, grammar: Grammar, lexemes: Lexemes, parts: RegularParts, resolve: TokenResolver) -> None:
        self.grammar = grammar
        self.lexemes = lexemes
        self.parts = parts
        self.resolve = resolve
        self.terminals: dict[str, str] = {}  # regular expression: name
        self.rules: dict[str, str] = {}  # name: body
        self.names = {name: f"r{number}" for number, name in enumerate(grammar.rules)}
        self.pending: list[str] = []
        self.written: set[str] = set()

    def text(self) -> str:
        start = self._reference("root")
        while self.pending:
            name = self.pending.pop()
            self.rules[self.names[name]] = self._body(self.grammar.rules[name].body)
        lines = [f"start: {start}"]
        lines += [f"{name}: {body}" for name, body in self.rules.items()]
        lines += [f"{name}: /{regex}/" for regex, name in self.terminals.items()]
        return "\n".join(lines) + "\n"

    def _reference(self, name: str) -> str:
        if name not in self.written:
            self.written.add(name)
            self.pending.append(name)
        return self.names[name]

    def _body(self, node: Node) -> str:
        """The node as the body of a rule."""
        if not self.lexemes.is_lexeme(node):
            if isinstance(node, Alt):
                return " | ".join(self._sequence(option) for option in node.options)
            if isinstance(node, Seq):
                return self._sequence(node)
        return self._symbol(node)

    def _sequence(self, node: Node) -> str:
        if isinstance(node, Seq) and not self.lexemes.is_lexeme(node):
            return " ".join(self._symbol(item) for item in self.lexemes.items(node)) or '""'
        return self._symbol(node)

    def _symbol(self, node: Node) -> str:
        """The node as one symbol: a terminal, a rule, a token, or one of these repeated."""
        if self.lexemes.is_lexeme(node):
            return self._terminal(self.parts.regex(node))
        match node:
            case Ref(name):
                return self._reference(name)
            case Token(_, _, negated):
                return f"<[{'^' if negated else ''}{self.resolve(node)}]>"
            case Repeat(item, low, high):
                return self._repeated(item, low, high)
            case Chars(chars) if not chars:
                return self._terminal(r"[^\x{0}-\x{10ffff}]")
            case _:
                name = f"g{len(self.rules)}"
                self.rules[name] = ""  # taken, so that parts get other names
                self.rules[name] = self._body(node)
                return name

    def _repeated(self, item: Node, low: int, high: int | None) -> str:
        if high == 0:
            return '""'
        symbol = self._symbol(item)
        if symbol[-1] in "*+?}" or symbol == '""':  # a repetition of a repetition needs a rule of its own
            name = f"g{len(self.rules)}"
            self.rules[name] = symbol
            symbol = name
        return symbol + repeat_suffix(low, high)

    def _terminal(self, regex: str) -> str:
        if not regex:
            return '""'
        return self.terminals.setdefault(regex, f"T{len(self.terminals)}")


def to_lark(grammar: Grammar, source: SourceText, resolve: TokenResolver) -> str:
    """The grammar in llguidance's dialect of Lark. Raises `ConstraintError` for rules that are nested too deep."""
    grammar = without_tail_recursion(grammar)
    depth = _depth({name: references(rule.body) for name, rule in grammar.rules.items()})
    if depth > MAX_RULE_DEPTH:
        raise source.error(grammar.root.offset, f"rules refer to each other {depth} deep, more than {MAX_RULE_DEPTH}")
    parts = RegularParts(grammar)
    lexemes = Lexemes(grammar, parts, Contexts(grammar))
    return _Writer(grammar, lexemes, parts, resolve).text()


def _depth(targets: dict[str, list[str]]) -> int:
    """How deep a depth-first walk from `root` gets: that is how llguidance compiles rules."""
    seen: set[str] = set()
    todo = [("root", 1)]
    deepest = 0
    while todo:
        name, depth = todo.pop()
        if name not in seen:
            seen.add(name)
            deepest = max(deepest, depth)
            todo.extend((target, depth + 1) for target in targets[name])
    return deepest
