"""Events of the engine's thread → tasks of the event loop.

Knows threads and one event loop; knows no HTTP. Invariants: the engine's thread never waits for a reader, the loop is
woken once for everything that a step says, and what a channel was told comes out once, in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from localrun.errors import LocalrunError
from localrun.responder import Event

Item = tuple[int, Event | LocalrunError]
"""The number of a choice, and what happened to it."""


class Relay:
    """Carries events into one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._posted: deque[tuple[Channel, Item]] = deque()
        self._woken = False

    def post(self, channel: Channel, item: Item) -> None:
        """Any thread may call it; it does not wait."""
        self._posted.append((channel, item))
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                return  # the loop is closed: nobody listens any more

    def _deliver(self) -> None:
        self._woken = False  # before emptying: a post from now on wakes the loop again
        while self._posted:
            channel, item = self._posted.popleft()
            channel.add(item)


class Channel:
    """The events of all choices of one response. One task reads it."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._items: list[Item] = []
        self._news = asyncio.Event()

    def sink(self, index: int) -> ChoiceSink:
        """Where the engine puts the events of choice `index`."""
        return ChoiceSink(self, self._relay.post, index)

    def add(self, item: Item) -> None:
        self._items.append(item)
        self._news.set()

    async def take(self) -> list[Item]:
        """Everything that has happened since; waits until something has."""
        await self._news.wait()
        self._news.clear()
        items, self._items = self._items, []
        return items


class ChoiceSink:
    """A `Sink` of the local responder."""

    def __init__(self, channel: Channel, post: Callable[[Channel, Item], None], index: int) -> None:
        self._channel, self._post, self._index = channel, post, index

    def put(self, item: tuple[Any, Event | LocalrunError]) -> None:
        self._post(self._channel, (self._index, item[1]))
