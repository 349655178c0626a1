"""Events → stdout and stderr.

Knows streams and formats; knows no engine. Invariants: stdout carries the answer (or the JSON asked for) and nothing
else; stderr holds escape codes only when it is a terminal; a stream that cannot be written is an error, a reader that
has gone is not.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any, Protocol

from localrun.errors import InvalidOutputError, OutputWriteError
from localrun.responder import (
    Done,
    Event,
    LoadProgress,
    PrefillProgress,
    ReasoningPiece,
    Result,
    TextPiece,
    TokenChosen,
    WarningRaised,
)

_EXCERPT = 60
"""Characters of an answer that an error shows."""


class Writer(Protocol):
    """Shows the events of one answer."""

    def write(self, event: Event) -> None: ...


def write_stdout(text: str) -> None:
    """Write and flush text as UTF-8, whatever the locale. Raises `OutputWriteError`; a closed pipe stays one."""
    try:
        # A lone surrogate can only come from bytes that were no UTF-8; they go out as they came in.
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputWriteError.of("the output", error) from error


def write_stderr(text: str) -> None:
    """Write and flush a note. Nobody reading it is no error."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        return


def is_fancy(stream: Any) -> bool:
    """Whether colours and moving text may be shown on `stream`."""
    return bool(stream.isatty()) and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")


def result_object(result: Result) -> dict[str, Any]:
    """The result object of `--json`. `choices` is there for a choice only; every other key always."""
    data = asdict(result)
    del data["context_used"], data["context_limit"], data["reuse"]
    if not data["choices"]:
        del data["choices"]
    data["timings"] = {name: round(value, 6) for name, value in data["timings"].items()}
    return data


def to_json(data: Any) -> str:
    """One line of JSON, UTF-8, ended by a newline."""
    return json.dumps(data, ensure_ascii=False) + "\n"


class TextWriter:
    """The answer as text while it comes; reasoning and warnings on stderr."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._dim = is_fancy(sys.stderr)
        self._reasoning = False
        self._ends_line = True
        self._terminal = sys.stdout.isatty()

    def write(self, event: Event) -> None:
        if isinstance(event, TextPiece):
            self._end_reasoning()
            write_stdout(event.text)
            self._ends_line = event.text.endswith("\n")
        elif isinstance(event, ReasoningPiece):
            self._show_reasoning(event.text)
        elif isinstance(event, WarningRaised):
            show_warning(event.warning.message, quiet=self._quiet)
        elif isinstance(event, Done):
            self._end_reasoning()
            if self._terminal and not self._ends_line:
                write_stdout("\n")

    def _show_reasoning(self, text: str) -> None:
        if self._quiet:
            return
        if not self._reasoning and self._dim:
            write_stderr("\x1b[2m")
        self._reasoning = True
        write_stderr(text)

    def _end_reasoning(self) -> None:
        if self._reasoning:
            write_stderr("\x1b[0m\n" if self._dim else "\n")
            self._reasoning = False


class ExtractWriter:
    """Only the last code block of the answer, at its end."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet

    def write(self, event: Event) -> None:
        if isinstance(event, WarningRaised):
            show_warning(event.warning.message, quiet=self._quiet)
        elif isinstance(event, Done):
            code = last_code_block(event.result.text)
            if code is None:
                # What goes into a shell must be code: prose stays out of the pipe, and is not lost for one who reads.
                if not self._quiet and sys.stderr.isatty():
                    write_stderr(f"{event.result.text}\n")
                begin = " ".join(event.result.text.split())
                begin = begin if len(begin) <= _EXCERPT else begin[:_EXCERPT].rstrip() + "…"
                raise InvalidOutputError(
                    f'the answer has no code block, it says "{begin}"',
                    hint="ask for code in a fenced block, or leave -x out to get the answer as it is",
                )
            write_stdout(code)


class JsonWriter:
    """One result object, at the end."""

    def write(self, event: Event) -> None:
        if isinstance(event, Done):
            write_stdout(to_json(result_object(event.result)))


class EventsWriter:
    """A JSON line for each event as it happens; the last one is the result with `"type":"done"`."""

    def write(self, event: Event) -> None:
        write_stdout(to_json(event_object(event)))


def event_object(event: Event) -> dict[str, Any]:
    """One event as a JSON object with a `type`."""
    match event:
        case TextPiece(text):
            return {"type": "text", "text": text}
        case ReasoningPiece(text):
            return {"type": "reasoning", "text": text}
        case PrefillProgress(done, total, cached):
            return {"type": "prefill", "done": done, "total": total, "cached": cached}
        case TokenChosen(piece, logprob, _):
            return {"type": "token", "text": piece.decode("utf-8", "replace"), "logprob": logprob}
        case LoadProgress(fraction):
            return {"type": "load", "fraction": round(fraction, 3)}
        case WarningRaised(warning):
            return {"type": "warning", "code": warning.code, "message": warning.message}
        case Done(result):
            return {"type": "done", **result_object(result)}


def show_warning(message: str, *, quiet: bool) -> None:
    """A warning on stderr."""
    if not quiet:
        write_stderr(f"warning: {message}\n")


def last_code_block(text: str) -> str | None:
    """The inside of the last fenced code block (an unfinished one counts); None where there is none.

    Fences as CommonMark has them: three or more backticks or tildes, closed by at least as many of the same.
    """
    block: list[str] | None = None
    last: list[str] | None = None
    fence = ""
    for line in text.splitlines(keepends=True):
        stripped = line.strip()
        if block is None:
            mark = stripped[:1]
            run = len(stripped) - len(stripped.lstrip(mark)) if mark in ("`", "~") else 0
            if run >= 3 and (mark == "~" or "`" not in stripped[run:]):
                fence, block = mark * run, []
        elif stripped.startswith(fence) and not stripped.strip(fence[0]):
            last, block = block, None
        else:
            block.append(line)
    found = block if block is not None else last
    return None if found is None else "".join(found)


def stats_lines(result: Result) -> str:
    """What `--stats` says."""
    usage, timings = result.usage, result.timings
    cached = usage.cached_ram_tokens + usage.cached_disk_tokens
    computed = usage.prompt_tokens - cached
    lines = [
        f"model    {result.model.name} ({result.model.quantization}), loaded in {timings.load_s:.2f} s",
        f"prompt   {usage.prompt_tokens:,} tokens, {computed:,} computed in {timings.prefill_s:.2f} s"
        + (f" ({timings.prefill_tps:,.0f} tokens/s)" if timings.prefill_tps else ""),
    ]
    if cached:
        where = "disk" if usage.cached_disk_tokens else "memory"
        saved = cached / timings.prefill_tps if timings.prefill_tps else 0
        gain = f", about {saved:.1f} s saved" if saved >= 0.05 else ""
        lines.append(f"reused   {cached:,} of {usage.prompt_tokens:,} tokens ({where}){gain}")
    if result.reuse:
        lines.append(f"         {result.reuse}")
    answer = f"answer   {usage.completion_tokens:,} tokens in {timings.decode_s:.2f} s"
    if timings.decode_tps:
        answer += f" ({timings.decode_tps:,.1f} tokens/s)"
    if usage.reasoning_tokens:
        answer += f", {usage.reasoning_tokens:,} of them reasoning"
    lines.append(answer)
    if usage.draft_tokens:
        lines.append(f"drafts   {usage.draft_accepted:,} of {usage.draft_tokens:,} tokens accepted")
    tpot = f", TPOT {1000 / timings.decode_tps:,.1f} ms" if timings.decode_tps else ""
    lines.append(f"time     TTFT {timings.ttft_s:.2f} s{tpot}, total {timings.total_s:.2f} s")
    lines.append(f"finish   {result.finish}, seed {result.seed}")
    return "".join(line + "\n" for line in lines)
