"""The library of ready grammars and schemas, and the examples each of them carries.

Knows the folder `grammars` and how its files describe themselves: `# purpose:`, `# accept:` and `# reject:` lines in a
grammar (examples are JSON strings), `title`, `description`, `examples` and `x-rejected` in a schema. Invariant: reading
an entry compiles nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localrun.params import ConstraintSpec
from localrun.resources import resource

GRAMMAR = ".gbnf"
SCHEMA = ".schema.json"


@dataclass(frozen=True, slots=True)
class Entry:
    """One ready grammar or schema."""

    name: str
    path: Path
    kind: str
    """`grammar` or `schema`."""
    purpose: str
    text: str
    accepted: tuple[str, ...]
    """Outputs that it allows."""
    rejected: tuple[str, ...]

    @property
    def spec(self) -> ConstraintSpec:
        return ConstraintSpec("gbnf" if self.kind == "grammar" else "json_schema", self.text, self.name)


def entries() -> list[Entry]:
    """All entries by name."""
    files = [path for path in resource("grammars").iterdir() if path.name.endswith((GRAMMAR, SCHEMA))]
    return [read(path) for path in sorted(files, key=lambda path: path.name)]


def read(path: Path) -> Entry:
    """The entry in a file of the library."""
    text = path.read_text(encoding="utf-8")
    if path.name.endswith(GRAMMAR):
        return _read_grammar(path, text)
    return _read_schema(path, text)


def _read_grammar(path: Path, text: str) -> Entry:
    purpose = ""
    accepted: list[str] = []
    rejected: list[str] = []
    for line in text.splitlines():
        label, _, rest = line.removeprefix("# ").partition(": ")
        if line.startswith("# purpose: "):
            purpose = rest
        elif line.startswith(("# accept: ", "# reject: ")):
            (accepted if label == "accept" else rejected).append(json.loads(rest))
    name = path.name.removesuffix(GRAMMAR)
    return Entry(name, path, "grammar", purpose, text, tuple(accepted), tuple(rejected))


def _read_schema(path: Path, text: str) -> Entry:
    schema: dict[str, Any] = json.loads(text)
    name = path.name.removesuffix(SCHEMA)
    accepted = tuple(map(_compact, schema.get("examples", ())))
    rejected = tuple(map(_compact, schema.get("x-rejected", ())))
    return Entry(name, path, "schema", schema.get("description", ""), text, accepted, rejected)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
