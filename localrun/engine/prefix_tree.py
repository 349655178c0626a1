"""Which slot holds which tokens: a radix tree over token ids.

Knows token ids and slot numbers; knows no memory. An edge carries a run of tokens; a node's `slots` are all slots
whose tokens pass through the whole of its edge. Invariant: the end of every slot's tokens is the end of a node, so a
slot holds either the whole of an edge or nothing of it.

The same idea as RadixAttention (Zheng et al., SGLang, 2024), with slots in the place of pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(slots=True)
class _Node:
    tokens: list[int]
    slots: set[int] = field(default_factory=set)
    children: dict[int, _Node] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Match:
    """The longest known prefix: `length` tokens, held by each of `slots`."""

    length: int
    slots: frozenset[int]


class PrefixTree:
    """Finds the longest prefix that any slot holds."""

    def __init__(self) -> None:
        self._root = _Node([])
        self._held: dict[int, list[int]] = {}

    def __contains__(self, slot: int) -> bool:
        return slot in self._held

    def held(self, slot: int) -> Sequence[int]:
        """The tokens that `slot` was last set to; empty for an unknown slot. Owned by the tree."""
        return self._held.get(slot, ())

    def set(self, slot: int, tokens: Sequence[int]) -> None:
        """`slot` now holds `tokens`, whatever it held before."""
        self.remove(slot)
        tokens = list(tokens)
        self._held[slot] = tokens
        node, at = self._root, 0
        while at < len(tokens):
            child = node.children.get(tokens[at])
            if child is None:
                child = _Node(tokens[at:])
                node.children[tokens[at]] = child
            else:
                common = _common(child.tokens, tokens, at)
                if common < len(child.tokens):
                    child = self._split(node, child, common)
            child.slots.add(slot)
            at += len(child.tokens)
            node = child

    def remove(self, slot: int) -> None:
        """Forget `slot`. Nothing happens for an unknown one."""
        tokens = self._held.pop(slot, None)
        if tokens is None:
            return
        path = [self._root]
        at = 0
        while at < len(tokens):
            child = path[-1].children[tokens[at]]
            child.slots.discard(slot)
            path.append(child)
            at += len(child.tokens)
        for parent, child in pairwise(path):
            if not child.slots:
                # Whatever hangs below has no slots either: they would be in this node's set.
                del parent.children[child.tokens[0]]
                break

    def match(self, tokens: Sequence[int]) -> Match:
        """The longest prefix of `tokens` that a slot holds, and who holds it."""
        node, at = self._root, 0
        while at < len(tokens):
            child = node.children.get(tokens[at])
            if child is None:
                break
            common = _common(child.tokens, tokens, at)
            at += common
            node = child
            if common < len(child.tokens):
                break
        return Match(at, frozenset(node.slots) if at else frozenset())

    def shared_length(self, slot: int) -> int:
        """How many of `slot`'s first tokens some other slot holds too."""
        tokens = self._held.get(slot, [])
        node, at = self._root, 0
        while at < len(tokens):
            node = node.children[tokens[at]]
            if len(node.slots) < 2:
                break
            at += len(node.tokens)
        return at

    def n_tokens(self) -> int:
        """Tokens of all edges: what the slots hold together, shared ones counted once."""
        return sum(len(node.tokens) for node in self._nodes())

    def n_tokens_outside(self, slots: AbstractSet[int]) -> int:
        """Tokens that none of `slots` holds, shared ones counted once."""
        return sum(len(node.tokens) for node in self._nodes() if node.slots.isdisjoint(slots))

    def _nodes(self) -> Iterator[_Node]:
        stack = [self._root]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    @staticmethod
    def _split(parent: _Node, child: _Node, at: int) -> _Node:
        upper = _Node(child.tokens[:at], set(child.slots))
        child.tokens = child.tokens[at:]
        upper.children[child.tokens[0]] = child
        parent.children[upper.tokens[0]] = upper
        return upper


def _common(edge: list[int], tokens: Sequence[int], at: int) -> int:
    """How many tokens of `edge` and of `tokens[at:]` agree from the start."""
    limit = min(len(edge), len(tokens) - at)
    if edge[:limit] == tokens[at : at + limit]:  # whole edges agree nearly always: compared at the speed of C
        return limit
    low, high = 0, limit  # edge[:low] agrees, edge[:high] does not
    while high - low > 1:
        middle = (low + high) // 2
        if edge[low:middle] == tokens[at + low : at + middle]:
            low = middle
        else:
            high = middle
    return low


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix of two token lists."""
    return _common(list(a), list(b), 0)
