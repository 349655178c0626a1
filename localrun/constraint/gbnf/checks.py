"""What a grammar must satisfy beyond its syntax.

Knows references between rules; knows no text beyond the offsets that errors point at. Invariant: a checked grammar has
a `root`, defines every rule it names, has no left recursion, and its root derives at least one finite string. All loops
are iterative, so a chain of thousands of rules costs no stack.
"""

from __future__ import annotations

from localrun.constraint.gbnf.syntax import Alt, Chars, Grammar, Node, Ref, Repeat, Seq, Token, walk
from localrun.constraint.source_text import SourceText
from localrun.errors import ConstraintError


def check(grammar: Grammar, source: SourceText) -> None:
    """Raise `ConstraintError` for the first fault found."""
    if not grammar.rules:
        raise ConstraintError(f"{source.name}: the grammar is empty", hint="it needs at least: root ::= ...")
    _check_references(grammar, source)
    if "root" not in grammar.rules:
        names = ", ".join(list(grammar.rules)[:5])
        raise ConstraintError(
            f"{source.name}: the grammar has no rule 'root'",
            hint=f"the output is what 'root' describes; it has: {names}",
        )
    _check_left_recursion(grammar, source)
    if "root" not in productive_rules(grammar):
        root = grammar.root
        raise source.error(root.offset, "no finite text matches 'root'", "every way through it needs itself again")


def _check_references(grammar: Grammar, source: SourceText) -> None:
    for rule in grammar.rules.values():
        missing = [n for n in walk(rule.body) if isinstance(n, Ref) and n.name not in grammar.rules]
        if missing:
            first = min(missing, key=lambda ref: ref.offset)
            raise source.error(first.offset, f"the rule {first.name!r} is not defined")


def references(node: Node) -> list[str]:
    """The names of all rules inside `node`, each once."""
    return list(dict.fromkeys(n.name for n in walk(node) if isinstance(n, Ref)))


def _least(grammar: Grammar, holds: dict[str, bool], test: _Test) -> None:
    """Grow `holds` to the least fixed point of `test`, following only rules whose parts have changed."""
    users: dict[str, list[str]] = {name: [] for name in grammar.rules}
    for rule in grammar.rules.values():
        for name in references(rule.body):
            users[name].append(rule.name)
    todo = list(grammar.rules)
    while todo:
        name = todo.pop()
        if not holds[name] and test.of(grammar.rules[name].body, holds):
            holds[name] = True
            todo.extend(users[name])


class _Test:
    """A property of nodes that builds up from their parts. Nodes are at most `MAX_DEPTH` deep, so recursion is safe."""

    def __init__(self, *, chars: bool) -> None:
        self.chars = chars
        """What a character or token gives: False for 'may be empty', True for 'may come to an end'."""

    def of(self, node: Node, holds: dict[str, bool]) -> bool:
        match node:
            case Chars(chars):
                return self.chars and bool(chars)
            case Token():
                return self.chars
            case Ref(name):
                return holds[name]
            case Seq(items):
                return all(self.of(item, holds) for item in items)
            case Alt(options):
                return any(self.of(option, holds) for option in options)
            case Repeat(item, low):
                return low == 0 or self.of(item, holds)


_NULLABLE = _Test(chars=False)
_PRODUCTIVE = _Test(chars=True)


def nullable_rules(grammar: Grammar) -> set[str]:
    """The rules that may derive the empty string."""
    holds = dict.fromkeys(grammar.rules, False)
    _least(grammar, holds, _NULLABLE)
    return {name for name, value in holds.items() if value}


def is_nullable(node: Node, nullable: set[str]) -> bool:
    """Whether `node` may derive the empty string, given the rules that may."""
    match node:
        case Chars() | Token():
            return False
        case Ref(name):
            return name in nullable
        case Seq(items):
            return all(is_nullable(item, nullable) for item in items)
        case Alt(options):
            return any(is_nullable(option, nullable) for option in options)
        case Repeat(item, low, high):
            return low == 0 or high == 0 or is_nullable(item, nullable)


def productive_rules(grammar: Grammar) -> set[str]:
    """The rules that derive some finite text."""
    holds = dict.fromkeys(grammar.rules, False)
    _least(grammar, holds, _PRODUCTIVE)
    return {name for name, value in holds.items() if value}


def _check_left_recursion(grammar: Grammar, source: SourceText) -> None:
    nullable = nullable_rules(grammar)
    starts = {name: _leftmost(rule.body, nullable) for name, rule in grammar.rules.items()}
    cycle = find_cycle({name: [ref.name for ref in refs] for name, refs in starts.items()})
    if cycle:
        last, first = cycle[-1], cycle[0]
        ref = next(ref for ref in starts[last] if ref.name == first)
        way = " -> ".join([*cycle, first])
        raise source.error(
            ref.offset, f"left recursion: {way}", "write a repetition instead, such as: item (sep item)*"
        )


def _leftmost(node: Node, nullable: set[str]) -> list[Ref]:
    """The rules that may begin what `node` derives."""
    match node:
        case Ref():
            return [node]
        case Seq(items):
            found: list[Ref] = []
            for item in items:
                found += _leftmost(item, nullable)
                if not is_nullable(item, nullable):
                    break
            return found
        case Alt(options):
            return [ref for option in options for ref in _leftmost(option, nullable)]
        case Repeat(item, _, high):
            return [] if high == 0 else _leftmost(item, nullable)
        case _:
            return []


def find_cycle(edges: dict[str, list[str]]) -> list[str]:
    """The names along one cycle of a graph, or nothing."""
    done: set[str] = set()
    for start in edges:
        path: list[str] = []
        on_path: set[str] = set()
        todo: list[tuple[str, bool]] = [(start, False)]
        while todo:
            name, leaving = todo.pop()
            if leaving:
                on_path.discard(path.pop())
                done.add(name)
            elif name in on_path:
                return path[path.index(name) :]
            elif name not in done:
                path.append(name)
                on_path.add(name)
                todo.append((name, True))
                todo.extend((target, False) for target in edges[name])
    return []
