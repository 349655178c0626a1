"""`localrun generate --batch` and `--samples`: many answers as JSON lines.

Knows flags, files and exit codes; the batch library does the work, and `batch_told` tells of it.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from localrun.batch import BatchRunner, ResumedFile, Row, RowReader, StreamOutput, Summary
from localrun.cli.batch_told import BatchTold, count_rows
from localrun.cli.output import result_object, write_stderr
from localrun.cli.signals import stop_on_signal
from localrun.errors import InputError, LocalrunError, UsageError

if TYPE_CHECKING:
    from localrun.batch.output import Output
    from localrun.local import LocalResponder
    from localrun.params import GenerationParams
    from localrun.remote.responder import RemoteResponder
    from localrun.responder import Request

EXIT_SOME_ROWS_FAILED = 1


def check_files(source: str, resume: Path | None) -> None:
    """Refuse to write into the file that is read, whatever name or link it goes by. Opens nothing."""
    try:
        read = os.fstat(sys.stdin.fileno()) if source == "-" else os.stat(source)
        written = os.stat(resume) if resume is not None else os.fstat(sys.stdout.fileno())
    except OSError:  # one of them is not there, or is no file
        return
    if stat.S_ISREG(read.st_mode) and os.path.samestat(read, written):
        name = "the output" if resume is None else f"--resume {resume}"
        raise UsageError(f"{name} is the same file as --batch {source}", hint="answers go to a file of their own")


def run_batch(
    responder: LocalResponder | RemoteResponder,
    source: str,
    params: GenerationParams,
    *,
    n_parallel: int,
    system: str | None,
    prompt: str | None,
    resume: Path | None,
    quiet: bool,
    stats: bool,
) -> int:
    """Run the rows of the file `source` (`-`: stdin); returns the exit code."""
    with ExitStack() as stack:
        check_files(source, resume)
        lines = _lines(source, stack)
        told = BatchTold(count_rows(lines), source=source, resume=resume, quiet=quiet)
        output: Output = ResumedFile(resume) if resume is not None else StreamOutput(told.write_stdout)
        stack.callback(output.close)
        rows = RowReader(params, system=system, prompt=prompt).read(lines)
        return _run(responder, rows, output, told, n_parallel=n_parallel, stats=stats)


def run_samples(
    responder: LocalResponder | RemoteResponder,
    request: Request,
    n_samples: int,
    *,
    n_parallel: int,
    quiet: bool,
    stats: bool,
) -> int:
    """Answer one request several times, one JSON line each. A given seed counts up; the prompt is computed once."""
    rows = (Row(i, None, _sample(request, i)) for i in range(n_samples))
    told = BatchTold(n_samples, quiet=quiet)
    return _run(responder, rows, StreamOutput(told.write_stdout), told, n_parallel=n_parallel, stats=stats)


def _sample(request: Request, number: int) -> Request:
    sampling = request.params.sampling
    if sampling.seed is None:
        return request
    params = replace(request.params, sampling=replace(sampling, seed=(sampling.seed + number) % (2**32 - 1)))
    return replace(request, params=params)


def _run(
    responder: LocalResponder | RemoteResponder,
    rows: Iterator[Row],
    output: Output,
    told: BatchTold,
    *,
    n_parallel: int,
    stats: bool,
) -> int:
    runner = BatchRunner(responder.start, output, result_object, n_parallel=n_parallel, on_progress=told.progress)
    told.progress(runner.summary)
    try:
        with stop_on_signal(runner.stop) as received:
            summary = runner.run(rows)
    except LocalrunError as error:
        error.hint = error.hint or told.how_to_go_on()
        raise
    finally:
        told.clear()
    if stats:
        write_stderr(_stats(summary))
    told.end(summary, stats=stats)
    if summary.stopped:
        return received.exit_code
    return EXIT_SOME_ROWS_FAILED if summary.n_failed else 0


def _lines(source: str, stack: ExitStack) -> BinaryIO:
    if source == "-":
        return sys.stdin.buffer
    try:
        return stack.enter_context(open(source, "rb"))
    except OSError as error:
        raise InputError(f"{source} cannot be read: {error.strerror}") from error


def _stats(summary: Summary) -> str:
    rate = summary.completion_tokens / summary.seconds if summary.seconds else 0.0
    resumed = f", {summary.n_resumed:,} were there already" if summary.n_resumed else ""
    return (
        f"rows     {summary.n_done:,} in {summary.seconds:.2f} s, {summary.n_failed:,} failed{resumed}\n"
        f"prompts  {summary.prompt_tokens:,} tokens, {summary.cached_tokens:,} of them reused\n"
        f"answers  {summary.completion_tokens:,} tokens ({rate:,.1f} tokens/s)\n"
    )
