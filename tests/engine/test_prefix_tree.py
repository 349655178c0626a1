"""The radix tree against a plain search."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localrun.engine.prefix_tree import PrefixTree, common_prefix

TOKENS = st.lists(st.integers(0, 2), max_size=12)


@given(st.lists(st.tuples(st.integers(0, 4), st.none() | TOKENS), max_size=30), TOKENS)
def test_the_tree_finds_what_a_plain_search_finds(
    changes: list[tuple[int, list[int] | None]], wanted: list[int]
) -> None:
    tree, plain = PrefixTree(), {}
    for slot, tokens in changes:
        if tokens is None:
            tree.remove(slot)
            plain.pop(slot, None)
        else:
            tree.set(slot, tokens)
            plain[slot] = tokens
    lengths = {slot: common_prefix(held, wanted) for slot, held in plain.items()}
    best = max(lengths.values(), default=0)
    match = tree.match(wanted)
    assert match.length == best
    assert match.slots == (frozenset(s for s, n in lengths.items() if n == best) if best else frozenset())
    prefixes = {tuple(held[: i + 1]) for held in plain.values() for i in range(len(held))}
    assert tree.n_tokens() == len(prefixes)
    for slot, held in plain.items():
        others = [common_prefix(held, other) for s, other in plain.items() if s != slot]
        assert tree.shared_length(slot) == max(others, default=0)


def test_an_emptied_tree_holds_nothing() -> None:
    tree = PrefixTree()
    tree.set(1, [1, 2, 3])
    tree.set(2, [1, 2, 4])
    tree.remove(1)
    tree.remove(2)
    tree.remove(2)
    assert tree.n_tokens() == 0
    assert tree.match([1, 2, 3]).length == 0


def test_what_only_others_hold_is_counted_once() -> None:
    tree = PrefixTree()
    tree.set(0, [1, 2, 3, 4])
    tree.set(1, [1, 2, 5, 6, 7])
    tree.set(2, [1, 2, 5, 8])
    assert tree.n_tokens() == 8
    assert tree.n_tokens_outside({0}) == 4
    assert tree.n_tokens_outside({1}) == 3
    assert tree.n_tokens_outside({0, 1, 2}) == 0
    assert tree.n_tokens_outside(set()) == 8
