"""`REGEX=TYPE`: a type the user forces on the tensors whose names a pattern is found in.

Invariant: the pattern is used as written, case included; the first override that matches a name wins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gguf.constants import GGMLQuantizationType

from quantize.errors import RecipeError
from quantize.types import parse_type


@dataclass(frozen=True, slots=True)
class Override:
    text: str
    """As the user wrote it."""
    pattern: re.Pattern[str]
    type: GGMLQuantizationType

    def matches(self, name: str) -> bool:
        return self.pattern.search(name) is not None


def parse_override(text: str) -> Override:
    """`ffn_down=q6_k` → an override.

    Raises:
        RecipeError: no `=`, an invalid pattern, or an unknown type.
    """
    pattern, separator, kind = text.rpartition("=")
    if not separator or not pattern:
        raise RecipeError(f"'{text}' is not REGEX=TYPE", hint="for example: --tensor 'ffn_down=q6_k'")
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise RecipeError(
            f"invalid pattern '{pattern}' in '{text}': {error}", hint="escape special characters"
        ) from error
    return Override(text, compiled, parse_type(kind))
