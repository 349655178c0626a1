"""A chat line by line: for pipes, for screen readers, for terminals that cannot draw.

Knows lines in and lines out; everything a conversation can do is done by `Conversation`. Invariant: stdout carries the
answers and nothing else unless a person is at the terminal; a control character of the model never reaches a terminal.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TextIO

from localrun.chat.conversation import (
    ContextFullError,
    Conversation,
    ConversationEvent,
    MakeRoom,
    MessageAdded,
)
from localrun.chat.conversation.commands import as_message, parse
from localrun.chat.conversation.meter import finish_words, meter_words, visible
from localrun.cli.live_line import LiveLine, ReadingLine
from localrun.cli.plain_commands import PlainCommands
from localrun.errors import LocalrunError, OutputWriteError, UsageError
from localrun.responder import Done, ReasoningPiece, Responder, TextPiece, WarningRaised
from localrun.store import Attachment

_TWICE_S = 2.0
"""Two Ctrl-C within this time leave."""
_ANSWERS: dict[str, MakeRoom] = {"c": "compact", "s": "shift", "b": "branch"}


@dataclass(frozen=True, slots=True)
class Streams:
    """Where lines come from and go to."""

    stdin: TextIO
    stdout: TextIO
    stderr: TextIO

    @property
    def person_types(self) -> bool:
        return self.stdin.isatty()

    @property
    def person_reads(self) -> bool:
        return self.stdout.isatty()


@contextmanager
def closed_after(events: Iterator[ConversationEvent]) -> Iterator[None]:
    """Close a generator at the end of the block, and not when it happens to be collected."""
    try:
        yield
    finally:
        if isinstance(events, Generator):
            events.close()


class PlainChat(PlainCommands):
    """The dialogue with one user."""

    def __init__(
        self,
        conversation: Conversation,
        streams: Streams,
        *,
        open_model: Callable[[str], Responder],
        stats: bool = False,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.conversation = conversation
        self._streams = streams
        self.open_model = open_model
        self._stats = stats
        self._quiet = quiet
        self._clock = clock
        self.attachments: list[Attachment] = []
        self._last_interrupt = -_TWICE_S
        self._mid_line = False

    def run(self) -> None:
        """Talk until the end of the input, `/quit`, or two Ctrl-C.

        An error ends the talk when nobody is there to read it (raised); otherwise it is shown and the talk goes on.
        """
        self._greet()
        while True:
            try:
                text = self._read()
                if text is None or not self._handle(text):
                    break
            except KeyboardInterrupt:
                if not self._streams.person_types or self._interrupted_twice():
                    raise
                self.say("(press Ctrl-C again to leave)")
            except LocalrunError as error:
                if not self._streams.person_types:
                    raise
                self.show_error(error)
        self._part()

    def show_error(self, error: LocalrunError) -> None:
        self.say(f"error: {error.message}")
        if error.hint:
            self.say(f"hint: {error.hint}")

    # Lines in

    def _read(self) -> str | None:
        """One message: a line, or the lines between two `\"\"\"`. None at the end of the input."""
        line = self._line("> ")
        if line is None:
            return None
        if not line.startswith('"""'):
            return line
        lines = [line[3:]]
        while not lines[-1].endswith('"""'):
            following = self._line(". ")
            if following is None:
                raise UsageError('the message that began with """ has no end')
            lines.append(following)
        lines[-1] = lines[-1].removesuffix('"""')
        return "\n".join(lines).strip("\n")

    def _line(self, prompt: str) -> str | None:
        if self._streams.person_types and self._streams.stdin is sys.stdin:
            try:
                import readline  # noqa: F401  # gives input() editing and history

                line = input(prompt)
                self._last_interrupt = -_TWICE_S  # who writes does not mean to leave
                return line
            except EOFError:
                self._streams.stdout.write("\n")
                return None
        try:
            line = self._streams.stdin.readline()
        except UnicodeDecodeError as error:
            raise UsageError(f"the input is not UTF-8 text: byte 0x{error.object[error.start]:02x}") from error
        return line.rstrip("\r\n") if line else None

    def _handle(self, line: str) -> bool:
        """Do what a line says; False to leave."""
        if not line.strip():
            return True
        command = parse(line)
        if command is None:
            attachments, self.attachments = self.attachments, []
            self.answer(self.conversation.ask(as_message(line), attachments))
            return True
        if command.name == "quit":
            return False
        handler = getattr(self, f"_do_{command.name}", None)
        if handler is None:
            raise UsageError(f"/{command.name} needs the full screen", hint="start `localrun chat` without --plain")
        handler(command)
        return True

    # Answers out

    def answer(self, events: Iterator[ConversationEvent]) -> None:
        try:
            self.stream(events)
        except ContextFullError as full:
            if not self._streams.person_types or not full.can_make_room:
                raise
            how = self._choose(full)
            if how is None:
                self.say("(not answered; your message is kept)")
                return
            self.stream(self.conversation.make_room(how))
            self.stream(self.conversation.answer())

    def _choose(self, full: ContextFullError) -> MakeRoom | None:
        self.say(full.message)
        self.say("[c]ompact older messages into a summary, [s]hift them out, [b]ranch off with the last question?")
        answer = (self._line("c/s/b: ") or "").strip().lower()
        return _ANSWERS.get(answer[:1])

    def stream(self, events: Iterator[ConversationEvent]) -> None:
        """Show an answer. Whatever ends it, it is closed here, while there still is a store to save it in."""
        thinking = False
        reading = ReadingLine(LiveLine(self._streams.stderr, quiet=self._quiet))
        with closed_after(events), self._stoppable(), reading:
            for event in events:
                reading.hear(event)
                if isinstance(event, ReasoningPiece) and not thinking:
                    thinking = True
                    self.say("(thinking)")
                elif isinstance(event, TextPiece):
                    self._write(event.text)
                elif isinstance(event, WarningRaised):
                    self.say(f"warning: {event.warning.message}")
                elif isinstance(event, MessageAdded):
                    self._mark(event.message_id)
                elif isinstance(event, Done):
                    self._end(event)

    def _end(self, done: Done) -> None:
        if self._mid_line:
            self._write("\n")
        words = finish_words(done.result.finish)
        if words:
            self.say(f"({words}; /continue goes on)")
        if self._stats:
            self.say(" · ".join(meter_words(done.result)))

    def _mark(self, message_id: int) -> None:
        node = self.conversation.tree.nodes[message_id]
        if node.kind == "shift":
            self.say(f"({node.text})")

    def _write(self, text: str) -> None:
        """An answer's text on stdout; for a person's terminal, without what would drive the terminal.

        Raises `OutputWriteError`; a closed pipe stays one.
        """
        if self._streams.person_reads:
            text = visible(text)
        try:
            self._streams.stdout.write(text)
            self._streams.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputWriteError.of("the output", error) from error
        if text:
            self._mid_line = not text.endswith("\n")

    def say(self, text: str) -> None:
        """A line from the program to the person, on stderr."""
        if self._mid_line and self._streams.person_reads:
            self._streams.stdout.write("\n")
            self._streams.stdout.flush()
            self._mid_line = False
        self._streams.stderr.write(visible(text) + "\n")
        self._streams.stderr.flush()

    def _greet(self) -> None:
        if self._streams.person_types:
            responder = self.conversation.responder
            name = responder.info.identity.name if responder is not None else "no model"
            self.say(f"Chat with {name}. /help shows the commands; Ctrl-C stops an answer; Ctrl-D leaves.")
            if self.conversation.path:
                self.say(f"(going on after {len(self.conversation.path)} messages)")

    def _part(self) -> None:
        session = self.conversation.session
        if session is not None and self._streams.person_types:
            self.say(f"Saved. Go on with: localrun chat --session {session.id}")

    # Ctrl-C

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        """While an answer runs, Ctrl-C stops it and keeps it; a second one within two seconds leaves."""

        def interrupt(_signal: int, _frame: FrameType | None) -> None:
            if not self._streams.person_types or self._interrupted_twice():
                raise KeyboardInterrupt
            # In a thread: the handler may have interrupted code that holds a lock which `stop` needs.
            threading.Thread(target=self.conversation.stop, daemon=True).start()

        try:
            before = signal.signal(signal.SIGINT, interrupt)
        except ValueError:  # not the main thread: signals are not ours
            yield
            return
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupted_twice(self) -> bool:
        now = self._clock()
        twice = now - self._last_interrupt < _TWICE_S
        self._last_interrupt = now
        return twice
