"""Sessions as files: JSON with everything, Markdown for people, and both back again.

Knows the two formats; touches no database. Invariant: `from_json(to_json(tree))` is the same tree, and
`from_markdown(to_markdown(path))` has the same messages in the same order, whatever their text holds.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from localrun.errors import InputError
from localrun.store.fields import checked
from localrun.store.records import GIVEN, Attachment, Kind, Node, Segment, Session, Tree

FORMAT = "localrun session"
VERSION = 1

_TITLES: dict[Kind, str] = {
    "user": "You",
    "assistant": "Assistant",
    "summary": "Summary of what came before",
    "shift": "Earlier messages left out from here on",
}
_MARKER = re.compile(r"^<!-- localrun:(user|assistant|summary|shift) -->$")
_FILE = re.compile(r"^<!-- localrun:file (\".*\") -->$")
_REASONING, _ANSWER = "<!-- localrun:reasoning -->", "<!-- localrun:answer -->"
_FOLD = "<details><summary>Reasoning</summary>"
_MARKER_LIKE = re.compile(r"^<!-- (\\*)localrun:", re.MULTILINE)
_ESCAPED_MARKER = re.compile(r"^<!-- \\(\\*)localrun:", re.MULTILINE)
# Headings of transcripts that other programs (and people) write.
_FOREIGN = re.compile(
    r"^(?:#{1,6}\s*|\*\*)(?:(user|you|human|me|question)|(assistant|ai|bot|model|answer))\s*:?\s*(?:\*\*)?\s*:?\s*$",
    re.IGNORECASE,
)


def to_json(tree: Tree) -> str:
    """The whole tree, readable by `from_json` and by people."""
    session = asdict(tree.session)
    del session["n_messages"]
    nodes = [asdict(node) for node in sorted(tree.nodes.values(), key=lambda node: node.number)]
    document = {"format": FORMAT, "version": VERSION, "session": session, "messages": nodes}
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def from_json(text: str, *, name: str = "the file") -> Tree:
    """The tree in a text that `to_json` made. Raises `InputError` that says what is wrong where."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InputError(f"{name} is not JSON: {error}") from error
    except RecursionError as error:
        raise InputError(f"{name} is JSON that is nested too deeply") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f"{name} is not an exported session", hint="`localrun sessions export` writes one")
    if document.get("version") != VERSION:
        raise InputError(
            f"{name} has the format version {document.get('version')!r}, this program reads {VERSION}",
            hint="it was written by a newer localrun: update localrun",
        )
    try:
        nodes = {node["id"]: _node_of(node) for node in document["messages"]}
        session = Session(**checked(document["session"], "session"))
        tree = Tree(session, nodes)
        _check_tree(tree)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{name} is not a complete session: {type(error).__name__}: {error}") from error
    return tree


def _node_of(document: dict[str, Any]) -> Node:
    fields = checked(document, "message")
    fields["segments"] = tuple(Segment(**checked(segment, "segment")) for segment in fields["segments"])
    fields["attachments"] = tuple(Attachment(**checked(file, "attachment")) for file in fields["attachments"])
    node = Node(**fields)
    if node.kind not in _TITLES:
        raise ValueError(f"message {node.number} has the kind {node.kind!r}")
    return node


def _check_tree(tree: Tree) -> None:
    """Every reference leads to an earlier message, so there is no cycle and `Store.load` can add them in order."""
    numbers: set[int] = set()
    for node in tree.nodes.values():
        if node.number in numbers:
            raise ValueError(f"two messages have the number {node.number}")
        numbers.add(node.number)
        for reference in (node.parent_id, node.covers_id):
            if reference is not None and tree.nodes[reference].number >= node.number:
                raise ValueError(f"message {node.number} points at a later one")
    if tree.session.head_id is not None and tree.session.head_id not in tree.nodes:
        raise ValueError(f"the session points at message {tree.session.head_id}, which is not there")


def to_markdown(session: Session, path: Sequence[Node]) -> str:
    """One path through the tree as a document. Comments that no renderer shows make it readable for `from_markdown`."""
    parts = [f"# {session.name or 'New chat'}", ""]
    for node in path:
        parts += [f"<!-- localrun:{node.kind} -->", f"## {_TITLES[node.kind]}{_byline(node)}", ""]
        for attachment in node.attachments:
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", attachment.text)), default=0))
            parts += [f"<!-- localrun:file {json.dumps(attachment.name)} -->", fence, _escape(attachment.text), fence]
            parts += [""]
        if node.reasoning:
            parts += [_REASONING, _FOLD, "", _escape(node.reasoning), "", "</details>", _ANSWER, ""]
        parts += [_escape(node.text), ""]
    return "\n".join(parts)


def from_markdown(text: str, *, name: str = "the file", clock: Callable[[], float] = time.time) -> Tree:
    """The messages of a Markdown transcript, as one path: ours exactly, others by their headings.

    Raises `InputError` if no message can be found.
    """
    text = text.removeprefix("\ufeff")
    if text.count("\r\n") == text.count("\n"):  # saved by an editor of Windows
        text = text.replace("\r\n", "\n")
    lines = text.split("\n")  # not splitlines(): a message may hold a form feed or a U+2028
    title = next((line[2:].strip() for line in lines if line.startswith("# ")), "")
    ours = any(_MARKER.match(line) for line in lines)
    turns = _our_turns(lines, name) if ours else _foreign_turns(lines)
    if not turns:
        raise InputError(
            f"{name} holds no message that could be recognized",
            hint="messages begin with the headings `## User` and `## Assistant`",
        )
    now = clock()
    nodes: dict[int, Node] = {}
    for number, (kind, content, reasoning, attachments) in enumerate(turns, start=1):
        segment = Segment(number, content, reasoning, GIVEN, now, now, {})
        covers = number - 2 if kind in ("summary", "shift") and number > 2 else None  # all but the last one before it
        nodes[number] = Node(
            number, number, number - 1 or None, kind, covers, now, segments=(segment,), attachments=tuple(attachments)
        )
    session = Session("imported", title or "Imported chat", "user", now, now, False, None, {}, len(turns))
    return Tree(session, nodes)


_Turn = tuple[Kind, str, str, list[Attachment]]


def _our_turns(lines: list[str], name: str) -> list[_Turn]:
    turns: list[_Turn] = []
    block: list[str] = []
    kind: Kind | None = None
    for line in [*lines, "<!-- localrun:user -->"]:
        marker = _MARKER.match(line)
        if marker is None:
            block.append(line)
            continue
        if kind is not None:
            try:
                turns.append(_our_turn(kind, block))
            except (ValueError, IndexError) as error:
                raise InputError(f"{name}: message {len(turns) + 1} holds a file that has no end") from error
        kind, block = marker.group(1), []  # type: ignore[assignment]  # the pattern names just the kinds
    return turns


def _our_turn(kind: Kind, block: list[str]) -> _Turn:
    rest = block[2:]  # the heading and the blank line after it
    attachments: list[Attachment] = []
    while rest and (file := _FILE.match(rest[0])):
        fence = rest[1]
        end = rest.index(fence, 2)
        attachments.append(Attachment(json.loads(file.group(1)), _unescape("\n".join(rest[2:end]))))
        rest = rest[end + 2 :]
    reasoning = ""
    if rest and rest[0] == _REASONING and _ANSWER in rest:
        end = rest.index(_ANSWER)
        reasoning = _unescape("\n".join(rest[3 : end - 2]))
        rest = rest[end + 2 :]
    return kind, _unescape("\n".join(rest[:-1] if rest and rest[-1] == "" else rest)), reasoning, attachments


def _foreign_turns(lines: list[str]) -> list[_Turn]:
    turns: list[_Turn] = []
    block: list[str] = []
    fenced = False
    for line in lines:
        heading = None if fenced else _FOREIGN.match(line.strip())
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        if heading is None:
            block.append(line)
            continue
        if turns:
            turns[-1] = (turns[-1][0], "\n".join(block).strip("\n"), "", [])
        block = []
        turns.append(("user" if heading.group(1) else "assistant", "", "", []))
    if turns:
        turns[-1] = (turns[-1][0], "\n".join(block).strip("\n"), "", [])
    return turns


def _escape(text: str) -> str:
    return _MARKER_LIKE.sub(r"<!-- \\\1localrun:", text)


def _unescape(text: str) -> str:
    return _ESCAPED_MARKER.sub(r"<!-- \1localrun:", text)


def _byline(node: Node) -> str:
    when = datetime.fromtimestamp(node.created_at, UTC).strftime("%Y-%m-%d %H:%M")
    model = node.facts.get("model")
    name = model.get("name") if isinstance(model, dict) else None
    return f" · {name} · {when}" if name else f" · {when}"
