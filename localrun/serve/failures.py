"""What goes wrong, in the API's words: a status, a type, a message.

Knows our errors and OpenAI's error object; knows no request. Invariant: every `LocalrunError` has a status, and nothing
else of the process (paths of code, tracebacks) is told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
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
from localrun.params import SamplingParams

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


_SETTINGS = frozenset(setting.name for setting in fields(SamplingParams))
ENGINE_FAILED = "engine_failed"
_FOR_COMMANDS = re.compile(r"(?<![\w-])--[a-z]|\blocalrun [a-z]")
_HINTS_FOR_CLIENTS = (
    ("--schema-lenient", "leave it out of the schema, and check the answer for it yourself"),
    ("--logit-bias", "logit_bias bans them"),
)
"""What a client can do, where the hint of an error speaks of the command line: a client has none."""


def as_api_error(error: LocalrunError, *, param: str | None = None) -> ApiError:
    """The response for one of our own errors. `param` is the field that a wrong constraint came from."""
    hint = _hint(error)
    message = error.message if hint is None else f"{error.message} ({hint})"
    for cls, status, kind, code in _KINDS:
        if isinstance(error, cls):
            wrong = param if isinstance(error, ConstraintError) else _setting(error) if status == 400 else None
            return ApiError(status, message, kind=kind, code=code, param=wrong)
    raise AssertionError("LocalrunError is the last kind")


def _hint(error: LocalrunError) -> str | None:
    if error.hint is None or not _FOR_COMMANDS.search(error.hint):
        return error.hint
    return next((told for flag, told in _HINTS_FOR_CLIENTS if flag in error.hint), None)


def _setting(error: LocalrunError) -> str | None:
    """The sampler's setting that an error begins with."""
    name = re.split(r" (?:is|names) ", error.message, maxsplit=1)[0].replace(" ", "_").replace("-", "_")
    return name if name in _SETTINGS else None


def engine_failed(error: ApiError) -> ApiError:
    """What is told to those whom the failure of an engine has cost their answer."""
    message = f"{error.message} (the model is loaded again: send the request once more)"
    return ApiError(500, message, kind="server_error", code=ENGINE_FAILED)
