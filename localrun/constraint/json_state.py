"""Where in a JSON text a byte stream has come to: inside a string or not, and for how long.

Knows JSON's quotes and escapes; knows no grammar and trusts that the text is valid so far.
"""

from __future__ import annotations

from dataclasses import dataclass

_NUMBER = frozenset(b"0123456789+-.eE")


@dataclass(frozen=True, slots=True)
class JsonState:
    """A place in a JSON text. Immutable: `after` gives the next one, and a list of them can be rolled back."""

    in_string: bool = False
    escaped: bool = False
    run: int = 0
    """Bytes of the string or number that is being written."""

    def after(self, data: bytes) -> JsonState:
        """The place after these bytes."""
        if self.in_string and b'"' not in data and b"\\" not in data:
            return JsonState(True, False, self.run + len(data))  # the common case: more of the same string
        inside, escaped, run = self.in_string, self.escaped, self.run
        for byte in data:
            if not inside:
                inside = byte == 0x22
                run = run + 1 if byte in _NUMBER else 0
            elif escaped:
                escaped, run = False, run + 1
            elif byte == 0x22:
                inside, run = False, 0
            else:
                escaped, run = byte == 0x5C, run + 1
        return JsonState(inside, escaped, run)
