"""A small grammar of rules and terminals, and its text in llguidance's notation.

Knows rules, repetitions and dead ends; knows no JSON. Invariant: what is written has no rule that derives nothing, so a
sequence that has been begun can always be finished.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from localrun.constraint.gbnf.regular import repeat_suffix


@dataclass(frozen=True, slots=True)
class Part:
    """A rule or terminal, repeated."""

    symbol: str
    low: int = 1
    high: int | None = 1


Option = tuple[Part, ...]


@dataclass(slots=True)
class RuleSet:
    """Rules by name, each a list of alternatives; terminals by name, as llguidance writes them."""

    rules: dict[str, list[Option]] = field(default_factory=dict)
    raw: dict[str, str] = field(default_factory=dict)
    """Bodies that are written as they are: nested JSON schemas and parametric rules."""
    _names: dict[str, str] = field(default_factory=dict)  # definition of a terminal: its name
    _leaves: dict[str, str] = field(default_factory=dict)  # body that is written as it is: its name

    def terminal(self, definition: str) -> str:
        """The name of a terminal with this definition."""
        return self._names.setdefault(definition, f"T{len(self._names)}")

    def literal(self, text: str) -> str:
        """The name of a terminal that is just this text."""
        return self.terminal(json.dumps(text))

    def leaf(self, body: str) -> str:
        """The name of a rule whose body is written as it is."""
        if body not in self._leaves:
            self._leaves[body] = self.reserve("w")
            self.raw[self._leaves[body]] = body
        return self._leaves[body]

    def reserve(self, letter: str) -> str:
        """A new name for a rule that will be written as it is."""
        name = f"{letter}{len(self.raw)}"
        self.raw[name] = ""
        return name

    def derives(self) -> set[str]:
        """The rules that derive some finite text."""
        found = set(self.raw)
        users: dict[str, set[str]] = {}
        for name, options in self.rules.items():
            for option in options:
                for part in option:
                    users.setdefault(part.symbol, set()).add(name)
        todo = list(self.rules)
        while todo:
            name = todo.pop()
            if name not in found and any(self._can_finish(option, found) for option in self.rules[name]):
                found.add(name)
                todo.extend(users.get(name, ()))
        return found

    def _can_finish(self, option: Option, found: set[str]) -> bool:
        return all(part.low == 0 or part.symbol not in self.rules or part.symbol in found for part in option)

    def text(self, start: str) -> str:
        """The grammar from `start`, without what derives nothing and what is not reached; empty if nothing is left."""
        alive = self.derives()
        if start not in alive:
            return ""
        lines = [f"start: {start}"]
        seen, todo = {start}, [start]
        while todo:
            name = todo.pop()
            if name in self.raw:
                continue
            options = []
            for option in self.rules[name]:
                if not self._can_finish(option, alive):
                    continue
                kept = [part for part in option if part.symbol not in self.rules or part.symbol in alive]
                options.append(" ".join(map(_written, kept)) or '""')
                fresh = [part.symbol for part in kept if part.symbol not in seen and part.symbol[0] != "T"]
                seen.update(fresh)
                todo.extend(dict.fromkeys(fresh))
            lines.append(f"{name}: {' | '.join(dict.fromkeys(options))}")
        lines += [f"{name}{'' if body.startswith(':') else ': '}{body}" for name, body in self.raw.items()]
        lines += [f"{name}: {definition}" for definition, name in self._names.items()]
        return "\n".join(lines) + "\n"


def _written(part: Part) -> str:
    if (part.low, part.high) == (1, 1):
        return part.symbol
    if part.high == 0:
        return '""'
    return part.symbol + repeat_suffix(part.low, part.high)


def literal_regex(text: str) -> str:
    """A regular expression that is just this text."""
    return "".join(rf"\x{{{ord(char):x}}}" for char in text)
