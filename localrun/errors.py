"""Every error that localrun raises on purpose, with its exit code and a hint.

    LocalrunError                      1   something failed while running
    ├── EngineError                    1   the engine refused or failed
    │   ├── ModelLoadError             1   a checked file that the engine still could not load
    │   └── NonFiniteLogitsError       1   the model produced NaN or infinite values
    ├── StoreError                     1   a session store or a cache that cannot be used
    ├── OutputWriteError               1   the answer could not be written
    ├── RemoteError                    1   a remote engine failed
    ├── StrictError                    1   a warning, where --strict makes warnings errors
    ├── UsageError                     2   a flag, value or combination that makes no sense
    │   ├── InputError                 2   a file or stdin that cannot be read as what it should be
    │   │   └── ModelFileError         2   not a GGUF file, truncated, hostile, or of an unknown kind
    │   ├── TemplateError              2   the chat template is missing, broken, or refuses these messages
    │   └── ConstraintError            2   a schema, grammar or regex that is invalid or cannot be enforced
    ├── ModelNotFoundError             3   no such model
    │   └── FetchError                 3   it exists, but could not be fetched
    │       ├── OfflineError           3   it is not here and the network is forbidden
    │       ├── GatedModelError        3   it needs a token or an accepted licence
    │       └── IntegrityError         3   what arrived is not what was promised (size, checksum)
    ├── DoesNotFitError                4   out of memory, or would not fit
    ├── ContextOverflowError           5   the prompt is longer than the context
    ├── IncompleteOutputError          6   stopped before an output that had to be complete was complete
    ├── InvalidOutputError             7   the output failed its final validation, or was empty
    └── InterruptedByUserError       130   Ctrl-C

Knows nothing of the other modules. Invariant: the message says what happened with the value that caused it, on one
line; the hint says what to do about it. `assert` is for our own bugs.
"""

from __future__ import annotations

import errno


class LocalrunError(Exception):
    """Base of all errors a user may see. `exit_code` is what the command line returns for it."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class EngineError(LocalrunError):
    """The engine refused a call or failed inside one."""


class ModelLoadError(EngineError):
    """The engine could not load a file that passed our own checks."""


class NonFiniteLogitsError(EngineError):
    """The model produced NaN or infinite values: its weights are damaged, or it overflowed."""


class StoreError(LocalrunError):
    """The session store or a cache cannot be opened, read or written."""


class OutputWriteError(LocalrunError):
    """stdout or an output file could not be written (a full disk, for example)."""

    @classmethod
    def of(cls, what: str, error: OSError) -> OutputWriteError:
        """For `what` could not be written, because of what the system says; the hint fits the reason."""
        hints = {
            errno.ENOSPC: "free some space",
            errno.EDQUOT: "free some space: your share of the disk is used up",
            errno.EACCES: "make the file and its folder writable, or name another one",
            errno.EROFS: "name a file on a disk that can be written",
            errno.ENOENT: "make its folder first",
            errno.EFBIG: "the disk's file system, or a limit of the shell (ulimit -f), takes no larger files",
        }
        reason = error.strerror or str(error)
        return cls(f"{what} could not be written: {reason}", hint=hints.get(error.errno or 0))


class RemoteError(LocalrunError):
    """A remote engine answered with an error, or not at all."""


class StrictError(LocalrunError):
    """A warning that the user wanted to be an error."""


class UsageError(LocalrunError):
    """A flag, a value, or a combination of them that makes no sense."""

    exit_code = 2


class InputError(UsageError):
    """A file or stdin could not be read as what it should be."""


class ModelFileError(InputError):
    """A model file is not GGUF, is cut short, is hostile, or is of a kind that cannot be run."""


class TemplateError(UsageError):
    """The chat template is missing, broken, or refuses these messages."""


class ConstraintError(UsageError):
    """A schema, grammar, regex or choice is invalid or holds something that cannot be enforced."""


class ModelNotFoundError(LocalrunError):
    """No such model in the catalogue, on disk, or at the named source."""

    exit_code = 3


class FetchError(ModelNotFoundError):
    """The model exists but could not be fetched."""


class OfflineError(FetchError):
    """The model is not on this machine and the network is forbidden or out of reach."""


class GatedModelError(FetchError):
    """The source asks for a token or for an accepted licence."""


class IntegrityError(FetchError):
    """What arrived has another size or checksum than was promised."""


class DoesNotFitError(LocalrunError):
    """The model or its context does not fit in memory."""

    exit_code = 4


class ContextOverflowError(LocalrunError):
    """The prompt is longer than the context."""

    exit_code = 5


class IncompleteOutputError(LocalrunError):
    """Generation stopped (length, context, time) before an output that had to be complete was complete."""

    exit_code = 6


class InvalidOutputError(LocalrunError):
    """The output failed its final validation, or was empty."""

    exit_code = 7


class InterruptedByUserError(LocalrunError):
    """The user pressed Ctrl-C."""

    exit_code = 130
