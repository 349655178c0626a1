"""What goes wrong, in the API's words: a status, a type, a message.

Knows our errors and OpenAI's error object; knows no request. Invariant: every `LocalrunError` has a status, and nothing
else of the process (paths of code, tracebacks) is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localrun.errors import (
    ConstraintError,
    ContextOverflowError,
    DoesNotFitError,
    InterruptedByUserError,
    InvalidOutputError,
    LocalrunError,
    ModelFileError,
    ModelNotFoundError,
    TemplateError,
    UsageError,
)

_KINDS: tuple[tuple[type[LocalrunError], int, str, str | None], ...] = (
    (ContextOverflowError, 400, "exceed_context_size_error", "context_length_exceeded"),
    (ConstraintError, 400, "invalid_request_error", "invalid_constraint"),
    (TemplateError, 400, "invalid_request_error", "template_refused"),
    (ModelFileError, 500, "server_error", "model_file"),
    (UsageError, 400, "invalid_request_error", None),
    (ModelNotFoundError, 404, "invalid_request_error", "model_not_found"),
    (DoesNotFitError, 503, "server_error", "does_not_fit"),
    (InvalidOutputError, 500, "server_error", "invalid_output"),
    (InterruptedByUserError, 503, "server_error", "interrupted"),
    (LocalrunError, 500, "server_error", None),
)


class ApiError(Exception):
    """A response that is an error."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


def as_api_error(error: LocalrunError) -> ApiError:
    """The response for one of our own errors."""
    message = error.message if error.hint is None or isinstance(error, ContextOverflowError) else _with_hint(error)
    for cls, status, kind, code in _KINDS:
        if isinstance(error, cls):
            return ApiError(status, message, kind=kind, code=code)
    raise AssertionError("LocalrunError is the last kind")


def _with_hint(error: LocalrunError) -> str:
    return f"{error.message} ({error.hint})"
