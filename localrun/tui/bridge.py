"""Between the thread that talks to the model and the screen.

Knows threads and events; knows no widget. Invariant: pieces that arrive faster than the screen asks are joined, in
order, so the screen does at most one step of work each time it looks; whatever goes wrong in the thread arrives as
`Failed`, and `Ended` is always the last update of a run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from localrun.chat.conversation import ConversationEvent
from localrun.errors import LocalrunError
from localrun.responder import ReasoningPiece, TextPiece

UPDATES_PER_S = 30
"""How often the screen looks: faster than an eye reads, slow enough to leave the processor to the model."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The run ended with an error."""

    error: LocalrunError


@dataclass(frozen=True, slots=True)
class Ended:
    """The run is over, well or not."""


Update = ConversationEvent | Failed | Ended


class Bridge:
    """Runs one thing at a time in a thread and collects what it says."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._updates: list[Update] = []
        self._thread: threading.Thread | None = None
        self._n_pieces = 0
        self._first_piece_at: float | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a run is going on, or has not been released yet."""
        return self._thread is not None

    @property
    def n_pieces(self) -> int:
        """How many pieces the running answer has had: about its tokens."""
        return self._n_pieces

    @property
    def pieces_per_s(self) -> float:
        """Tokens a second of the running answer, as far as pieces are tokens; 0 before the second one."""
        with self._lock:
            if self._first_piece_at is None or self._n_pieces < 2:
                return 0.0
            return (self._n_pieces - 1) / max(self._clock() - self._first_piece_at, 1e-3)

    def start(self, begin: Callable[[], Iterator[ConversationEvent]]) -> None:
        """Run the events that `begin` returns, in a thread. Only when not busy."""
        assert not self.is_busy, "one run at a time"
        self._n_pieces, self._first_piece_at = 0, None
        self._thread = threading.Thread(target=self._run, args=(begin,), name="localrun-chat", daemon=True)
        self._thread.start()

    def take(self) -> list[Update]:
        """What has come since the last call, pieces joined."""
        with self._lock:
            taken, self._updates = self._updates, []
        return taken

    def release(self) -> None:
        """`Ended` has been dealt with: a new run may start."""
        self._thread = None

    def join(self, timeout: float) -> None:
        """Wait for the thread; for leaving."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self, begin: Callable[[], Iterator[ConversationEvent]]) -> None:
        try:
            for event in begin():
                self._put(event)
        except LocalrunError as error:
            self._put(Failed(error))
        except Exception as error:  # a bug must show on the screen: an exception of a thread is seen by nobody
            self._put(Failed(LocalrunError(f"{type(error).__name__}: {error}", hint="this is a bug in localrun")))
        finally:
            self._put(Ended())

    def _put(self, update: Update) -> None:
        with self._lock:
            last = self._updates[-1] if self._updates else None
            if isinstance(update, TextPiece | ReasoningPiece):
                self._n_pieces += 1
                if self._first_piece_at is None:
                    self._first_piece_at = self._clock()
                if type(last) is type(update):
                    self._updates[-1] = type(update)(last.text + update.text)
                    return
            self._updates.append(update)
