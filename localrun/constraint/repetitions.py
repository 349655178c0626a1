"""How long a regular expression is with its counted repetitions written out.

Knows where Rust's syntax has groups, classes, escapes and counts; knows nothing of their meaning, and leaves what is
wrong to the parser. Invariant: linear in the text, whatever the counts.
"""

from __future__ import annotations

import re

MAX_WRITTEN_OUT = 200_000
"""Characters and classes of an expression whose counted repetitions are written out: compiling takes as long."""

_COUNT = re.compile(r"\{\s*(\d+)\s*(?:(,)\s*(\d*)\s*)?\}")
_ESCAPE = re.compile(r"\\(?:[xuUpP]\{[^}]*\}|[pP]?.)", re.DOTALL)
_FLAGS = re.compile(r"\(\?(?:P?<[^>]*>|[a-zA-Z\-]*[:)])")


def written_out(pattern: str) -> tuple[int, int]:
    """(size, offset of the repetition that made it larger than `MAX_WRITTEN_OUT`, else 0)."""
    sizes = [0]  # of each open group
    last = pos = 0  # size of the element before `pos`
    while pos < len(pattern):
        char = pattern[pos]
        end = pos + 1
        if counted := _COUNT.match(pattern, pos):
            times = max(int(counted[1][:12]), int((counted[3] or "0")[:12]))
            sizes[-1] += last * max(times - 1, 0)
            last *= max(times, 1)
            end = counted.end()
        elif char == "(":
            flags = _FLAGS.match(pattern, pos)
            end = flags.end() if flags else end
            if not (flags and flags[0].endswith(")")):
                sizes.append(0)
            last = 0
        elif char == ")":
            last = sizes.pop() if len(sizes) > 1 else 0
            sizes[-1] += last
        elif char not in "*+?|":
            end = _class_end(pattern, pos) if char == "[" else _element_end(pattern, pos)
            last = 1
            sizes[-1] += 1
        if max(sizes[-1], last) > MAX_WRITTEN_OUT:
            return sizes[-1], pos
        pos = end
    return sum(sizes), 0


def _element_end(pattern: str, pos: int) -> int:
    escape = _ESCAPE.match(pattern, pos)
    return escape.end() if escape else pos + 1


def _class_end(pattern: str, pos: int) -> int:
    """Behind a class, classes inside it included."""
    depth = 0
    while pos < len(pattern):
        if pattern[pos] == "[":
            depth += 1
            pos += 2 if pattern.startswith("[^", pos) else 1
            pos += pattern.startswith("]", pos)  # the first one is a member
            continue
        depth -= pattern[pos] == "]"
        pos = _element_end(pattern, pos)
        if depth == 0:
            break
    return pos
