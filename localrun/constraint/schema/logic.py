"""What the keywords that combine whole schemas say, wanted and unwanted.

Knows `allOf`, `anyOf`, `oneOf`, `not`, `if` and `$ref`; knows no types. See `scalars` for what a reader returns.
"""

from __future__ import annotations

from localrun.constraint.schema.expr import EVERYTHING
from localrun.constraint.schema.keywords import Keyword, Reader, Shapes, Unenforceable, join_all, union

MAX_ONE_OF = 1_000
"""Alternatives of one `oneOf`: each is compared with every other."""


def _parts(keyword: Keyword, *, wanted: bool) -> list[Shapes]:
    return [keyword.literal(keyword.name, i, wanted=wanted) for i in range(len(keyword.value))]


def _all_of(keyword: Keyword) -> Shapes:
    return join_all(_parts(keyword, wanted=True), keyword.pointer)


def _not_all_of(keyword: Keyword) -> Shapes:
    return union(_parts(keyword, wanted=False))


def _any_of(keyword: Keyword) -> Shapes:
    return union(_parts(keyword, wanted=True))


def _not_any_of(keyword: Keyword) -> Shapes:
    return join_all(_parts(keyword, wanted=False), keyword.pointer)


def _refuse_too_many(keyword: Keyword) -> None:
    if len(keyword.value) > MAX_ONE_OF:
        raise keyword.refuse(f"more than {MAX_ONE_OF:,} alternatives of 'oneOf' cannot be enforced; 'enum' takes more")


def _overlap(keyword: Keyword, parts: list[Shapes]) -> dict[int, set[int]]:
    """For each alternative the others that may describe the same value."""
    found: dict[int, set[int]] = {i: set() for i in range(len(parts))}
    for i, first in enumerate(parts):
        for j in range(i):
            shared = join_all([first, parts[j]], keyword.pointer)
            if not all(keyword.expander.shape_is_empty(shape) for shape in shared):
                found[i].add(j)
                found[j].add(i)
    return found


def _one_of(keyword: Keyword) -> Shapes:
    _refuse_too_many(keyword)
    parts = _parts(keyword, wanted=True)
    overlap = _overlap(keyword, parts)
    found: list[Shapes] = []
    for i, part in enumerate(parts):
        try:
            unwanted = [keyword.literal("oneOf", j, wanted=False) for j in sorted(overlap[i])]
        except Unenforceable as error:
            problem = f"the alternatives {i} and {min(overlap[i])} of 'oneOf' may describe the same value: {error}"
            raise keyword.refuse(problem) from error
        found.append(join_all([part, *unwanted], keyword.pointer))
    return union(found)


def _not_one_of(keyword: Keyword) -> Shapes:
    _refuse_too_many(keyword)
    parts = _parts(keyword, wanted=True)
    none = join_all(_parts(keyword, wanted=False), keyword.pointer)
    two = [join_all([parts[i], parts[j]], keyword.pointer) for i in range(len(parts)) for j in range(i)]
    return union([none, *two])


def _not(keyword: Keyword) -> Shapes:
    return keyword.literal("not", wanted=False)


def _not_not(keyword: Keyword) -> Shapes:
    return keyword.literal("not")


def _if(keyword: Keyword) -> Shapes:
    return _branches(keyword, wanted=True)


def _not_if(keyword: Keyword) -> Shapes:
    return _branches(keyword, wanted=False)


def _branches(keyword: Keyword, *, wanted: bool) -> Shapes:
    if "then" not in keyword.schema and "else" not in keyword.schema:
        return EVERYTHING if wanted else ()
    found = []
    for branch, holds in (("then", True), ("else", False)):
        missing = EVERYTHING if wanted else ()
        shapes = keyword.literal(branch, wanted=wanted) if branch in keyword.schema else missing
        found.append(join_all([keyword.literal("if", wanted=holds), shapes], keyword.pointer))
    return union(found)


def _ref(keyword: Keyword, *, wanted: bool = True) -> Shapes:
    expander = keyword.expander
    return expander.literal(expander.document.resolve(keyword.schema_id, keyword.value), wanted)


def _not_ref(keyword: Keyword) -> Shapes:
    return _ref(keyword, wanted=False)


LOGIC_READERS: dict[str, tuple[Reader, Reader]] = {
    "allOf": (_all_of, _not_all_of),
    "anyOf": (_any_of, _not_any_of),
    "oneOf": (_one_of, _not_one_of),
    "not": (_not, _not_not),
    "if": (_if, _not_if),
    "$ref": (_ref, _not_ref),
}
"""By keyword: the reader for values that satisfy it, and the one for values that violate it."""
