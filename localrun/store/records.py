"""What the store gives back: frozen values, and the tree they form.

Knows the words session, message, segment; knows no SQL and no engine. Invariant: a `Tree` is a snapshot; asking it
never touches the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

Kind = Literal["user", "assistant", "summary", "shift"]
Facts = Mapping[str, object]
"""A JSON object: model, settings, seed, token counts, times of one run. The store keeps it and never looks inside."""

GIVEN = "given"
"""`finish` of a segment that a person wrote, or that was imported without saying how it ended."""
CRASHED = "crashed"
"""`finish` of a segment whose writer disappeared."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A text file or a long paste that goes along with a message."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Segment:
    """One run of writing on a message: the only one of a user's message; one more each time an answer is continued."""

    id: int
    text: str
    reasoning: str
    finish: str | None
    """How the run ended; None while it goes on."""
    started_at: float
    ended_at: float | None
    facts: Facts


@dataclass(frozen=True, slots=True)
class Node:
    """A message in its place in the tree."""

    id: int
    number: int
    """1, 2, 3 … within its session, in order of creation: how people name a message."""
    parent_id: int | None
    kind: Kind
    covers_id: int | None
    """For a summary or a shift mark: the last message that it stands for."""
    created_at: float
    segments: tuple[Segment, ...] = ()
    attachments: tuple[Attachment, ...] = ()

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments)

    @property
    def reasoning(self) -> str:
        return "".join(segment.reasoning for segment in self.segments)

    @property
    def finish(self) -> str | None:
        return self.segments[-1].finish if self.segments else GIVEN

    @property
    def facts(self) -> Facts:
        return self.segments[-1].facts if self.segments else {}


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation, without its messages."""

    id: str
    name: str
    named_by: Literal["", "exchange", "user"]
    created_at: float
    touched_at: float
    pinned: bool
    trashed_at: float | None
    settings: Facts
    head_id: int | None
    """The message that the user looked at last; a conversation goes on below it."""
    n_messages: int = 0


@dataclass(frozen=True)
class Tree:
    """All messages of a session."""

    session: Session
    nodes: Mapping[int, Node] = field(default_factory=dict)

    @cached_property
    def _children(self) -> dict[int | None, list[Node]]:
        children: dict[int | None, list[Node]] = {}
        for node in sorted(self.nodes.values(), key=lambda node: node.number):
            children.setdefault(node.parent_id, []).append(node)
        return children

    def path(self, leaf_id: int | None) -> tuple[Node, ...]:
        """From the first message down to `leaf_id`."""
        found: list[Node] = []
        while leaf_id is not None:
            node = self.nodes[leaf_id]
            found.append(node)
            leaf_id = node.parent_id
        return tuple(reversed(found))

    @property
    def head_path(self) -> tuple[Node, ...]:
        return self.path(self.session.head_id)

    def children(self, node_id: int | None) -> tuple[Node, ...]:
        """The messages that follow `node_id` directly (None: the beginnings), oldest first."""
        return tuple(self._children.get(node_id, ()))

    def siblings(self, node_id: int) -> tuple[Node, ...]:
        """The alternatives at this place, itself included, oldest first."""
        return self.children(self.nodes[node_id].parent_id)

    def newest_leaf(self, node_id: int) -> Node:
        """Where the branch through `node_id` was left: its newest descendant (or itself)."""
        newest = self.nodes[node_id]
        waiting = [newest]
        while waiting:
            node = waiting.pop()
            if node.number > newest.number:
                newest = node
            waiting.extend(self.children(node.id))
        return newest

    def numbered(self, number: int) -> Node | None:
        """The message that people call `number`."""
        return next((node for node in self.nodes.values() if node.number == number), None)


@dataclass(frozen=True, slots=True)
class Hit:
    """A place where a search found something."""

    session_id: str
    session_name: str
    number: int
    """The message's number; 0 when the session's name matched."""
    kind: str
    created_at: float
    snippet: tuple[tuple[str, bool], ...]
    """The text around it, in parts; True marks what matched."""
