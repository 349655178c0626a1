"""Every error of the quantization library.

    QuantizeError                 something failed
    ├── SourceError               the checkpoint is incomplete, damaged or contradicts itself
    │   └── UnsupportedError      an architecture, tokenizer, dtype or quantization method that is not known
    ├── RecipeError               a type, recipe or override that makes no sense for this model
    ├── DestinationError          the output cannot be written, or must not be (it is the input)
    │   └── NoSpaceError          the disk is too small
    ├── MemoryLimitError          it would not fit in memory
    ├── WeightError               a weight that is NaN, infinite or overflows its type
    └── VerificationError         the written file is not what was planned

The message says what happened with the value that caused it; the hint says what to do. Knows nothing of localrun:
the command line maps these to its own exit codes.
"""

from __future__ import annotations


class QuantizeError(Exception):
    """Base of all errors of this library."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class SourceError(QuantizeError):
    """The checkpoint is incomplete, damaged or contradicts itself."""


class UnsupportedError(SourceError):
    """An architecture, tokenizer, dtype or quantization method that is not known here."""


class RecipeError(QuantizeError):
    """A type, recipe or override that makes no sense for this model."""


class DestinationError(QuantizeError):
    """The output cannot be written, or must not be."""


class NoSpaceError(DestinationError):
    """The disk is too small for the output."""


class MemoryLimitError(QuantizeError):
    """The work would not fit in memory."""


class WeightError(QuantizeError):
    """A weight is NaN, infinite or overflows the type it is written in."""


class VerificationError(QuantizeError):
    """The written file is not what was planned."""
