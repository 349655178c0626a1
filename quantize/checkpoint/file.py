"""An open file whose parts can be read from many threads, without a memory map.

Mapped pages count as resident memory, and a model larger than memory must not. Invariant: what is returned is exactly
what was asked for; a file that ends early is an error.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path

from quantize.errors import SourceError


class ReadableFile:
    """A file that is closed when nobody holds it any more."""

    def __init__(self, path: Path) -> None:
        """Open it. Raises SourceError when that is not possible."""
        try:
            self.descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError as error:
            raise SourceError(f"cannot open {path}: {error.strerror}") from error
        weakref.finalize(self, os.close, self.descriptor)
        self.path = path
        self.size = os.fstat(self.descriptor).st_size

    def read(self, offset: int, n_bytes: int) -> bytes:
        """These bytes. Raises SourceError when the file has become shorter or cannot be read."""
        pieces = []
        while n_bytes:
            try:
                piece = os.pread(self.descriptor, n_bytes, offset)
            except OSError as error:
                raise SourceError(f"cannot read {self.path}: {error.strerror}") from error
            if not piece:
                raise SourceError(f"{self.path} ended while it was read, at byte {offset}")
            pieces.append(piece)
            offset += len(piece)
            n_bytes -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
