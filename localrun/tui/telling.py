"""Errors of ours in a handler are told to the user; they never end the application.

For example: another process has deleted the chat that is open, or the disk is full. Textual ends an application whose
handler raises, which is right for bugs only.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from localrun.errors import LocalrunError

Handler = TypeVar("Handler", bound=Callable[..., Any])


def tells_errors(handler: Handler) -> Handler:
    """A method of a screen or an application whose `LocalrunError` is shown with its hint."""
    if inspect.iscoroutinefunction(handler):

        @functools.wraps(handler)
        async def tell_async(self: Any, *args: Any, **named: Any) -> Any:
            try:
                return await handler(self, *args, **named)
            except LocalrunError as error:
                return self.app.show_error(error)

        return tell_async  # type: ignore[return-value]  # the same signature

    @functools.wraps(handler)
    def tell(self: Any, *args: Any, **named: Any) -> Any:
        try:
            return handler(self, *args, **named)
        except LocalrunError as error:
            return self.app.show_error(error)

    return tell  # type: ignore[return-value]  # the same signature
