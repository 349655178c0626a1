"""`localrun generate`: a prompt in, an answer out.

Knows flags, the order of things and what each finish means for the exit code; knows no engine. Invariant: whatever can
be wrong with the input is said before the model is loaded.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localrun.chat.messages import Message
from localrun.cli import options as o
from localrun.cli.constraints import constraint_of
from localrun.cli.inputs import compose, read_text_file
from localrun.cli.live_line import LiveLine, ReadingLine
from localrun.cli.opening import open_engine
from localrun.cli.output import (
    EventsWriter,
    ExtractWriter,
    JsonWriter,
    TextWriter,
    Writer,
    stats_lines,
    to_json,
    write_stderr,
    write_stdout,
)
from localrun.cli.settings import load_config
from localrun.cli.signals import stop_on_signal
from localrun.errors import IncompleteOutputError, InterruptedByUserError, InvalidOutputError, StrictError, UsageError
from localrun.responder import Done, Request, Responder, Result, WarningRaised

if TYPE_CHECKING:
    from localrun.cli.session_answer import SessionResponder
    from localrun.config import Config
    from localrun.params import ConstraintSpec, EngineParams, GenerationParams

_BATCH_PARALLEL = 8
"""Sequences at once for many prompts: on a small CPU their rate hardly grows beyond."""


@o.takes(o.SAMPLING, o.SPREAD)
def generate(
    prompt: Annotated[str | None, typer.Argument(help="The question; `-` reads stdin.", show_default=False)] = None,
    model: o.Model = None,
    system: o.System = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "-f", "--file", help="A text to put before the prompt (repeatable).", metavar="FILE", readable=False
        ),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Send the text as it is, without a chat template.")] = False,
    max_tokens: o.MaxTokens = None,
    stop: o.Stop = None,
    ctx: o.Ctx = None,
    on_overflow: o.OnOverflow = None,
    timeout: o.Timeout = None,
    ignore_eos: o.IgnoreEos = None,
    schema: o.Schema = None,
    grammar: o.Grammar = None,
    regex: o.Regex = None,
    choice: o.Choice = None,
    schema_lenient: o.SchemaLenient = False,
    pretty: o.Pretty = False,
    close: o.Close = True,
    think: o.Think = None,
    think_budget: o.ThinkBudget = None,
    json_output: Annotated[bool, typer.Option("--json", help="One result object.")] = False,
    events: Annotated[bool, typer.Option("--events", help="JSON lines as things happen.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="A summary on stderr.")] = False,
    show_prompt: Annotated[
        bool, typer.Option("--show-prompt", help="The exact prompt and its tokens; no answer.")
    ] = False,
    extract: Annotated[bool, typer.Option("-x", "--extract", help="Only the last code block.")] = False,
    batch: Annotated[
        str | None,
        typer.Option("--batch", help="Answer every line of a JSONL file; `-` reads stdin.", metavar="FILE|-"),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", help="With --batch: append to this file what it does not have yet.", metavar="OUT"),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option("--session", help="Go on with a saved chat.", metavar="ID|last|ID:MESSAGE", show_default=False),
    ] = None,
    samples: Annotated[
        int, typer.Option("--samples", help="So many answers, one JSON line each.", metavar="N", min=1)
    ] = 1,
    parallel: o.Parallel = None,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine", help="A remote engine: a URL, a name of the configuration, or local.", metavar="URL|NAME"
        ),
    ] = None,
    threads: o.Threads = None,
    kv_type: o.KvType = None,
    flash_attention: o.FlashAttention = None,
    draft: o.Draft = None,
    cache: o.Cache = None,
    strict: o.Strict = None,
    offline: o.Offline = None,
    quiet: o.Quiet = None,
    **settings: o.Setting,
) -> int:
    """Answer a prompt to stdout: files, then stdin, then PROMPT make the text."""
    flags = locals() | settings
    if sum((json_output, events, extract, show_prompt)) > 1 and not (show_prompt and json_output):
        raise UsageError("--json, --events, -x and --show-prompt exclude each other")
    config = load_config(flags)
    name, quiet, is_strict = config.get("model"), bool(config.get("quiet")), bool(config.get("strict"))
    constraint = constraint_of(
        schema=schema, grammar=grammar, regex=regex, choice=choice, lenient=schema_lenient, pretty=pretty, close=close
    )
    params = replace(config.generation(name), constraint=constraint)
    n_parallel = _n_parallel(config, batch, samples)
    engine_params = replace(config.engine(name), n_parallel=n_parallel)
    if batch is not None and (events or extract or show_prompt):
        flag = "--events" if events else "-x" if extract else "--show-prompt"
        raise UsageError(f"--batch excludes {flag}", hint="a batch writes a JSON line for each row: docs/batch.md")
    if batch is not None and (session is not None or samples > 1):
        raise UsageError("--batch excludes --session and --samples")
    if batch is not None:
        return _batch(config, engine_params, params, batch, prompt, file or [], resume, stats=stats)
    if resume is not None:
        raise UsageError("--resume goes with --batch")
    composed = compose(prompt, file or [], raw=raw)
    request = replace(_request(composed.raw if raw else None, composed.text, config, name, params), explain=stats)
    _check(constraint)
    if session is not None and (raw or show_prompt or samples > 1):
        raise UsageError("--session excludes --raw, --show-prompt and --samples")
    with ExitStack() as stack:
        chat = _open_session(session, stack)
        if chat is not None and config.setting("model").origin != "flag":
            name = chat.model or name
        opened = open_engine(config, name, engine_params, stack)
        if show_prompt:
            return _show_prompt(opened, request, as_json=json_output)
        if samples > 1:
            from localrun.cli.batch import run_samples

            return run_samples(opened, request, samples, n_parallel=n_parallel, quiet=quiet, stats=stats)
        responder: Responder = opened
        if chat is not None:
            chat.attach(opened, flags, constraint)
            responder = chat
        writer = _writer(json_output=json_output, events=events, extract=extract, quiet=quiet)
        with stop_on_signal(responder.stop) as received:
            try:
                told_already = events and sys.stdout.isatty()  # two tellers of one screen write over each other
                with ReadingLine(LiveLine(sys.stderr, quiet=quiet or told_already)) as reading:
                    result = _answer(responder, request, writer, reading, strict=is_strict)
            except InterruptedByUserError:  # while the model was loading: there is nothing to show
                return received.exit_code
        if stats:
            write_stderr(stats_lines(result))
        if result.finish == "interrupted":
            return received.exit_code
        # Asked only where it matters: what a responder knows of its model takes its template, and its import, to tell.
        trained = responder.info.context_trained if result.finish == "context" else 0
        judge(result, params, strict=is_strict, trained=trained)
        if not (quiet or json_output or events) and sys.stderr.isatty():
            write_stderr(cut_off_note(result))
        return 0


def _open_session(name: str | None, stack: ExitStack) -> SessionResponder | None:
    if name is None:
        return None
    from localrun.cli.session_answer import SessionResponder

    chat = SessionResponder(name)
    stack.callback(chat.close)
    return chat


def _n_parallel(config: Config, batch: str | None, samples: int) -> int:
    """How many sequences run at once: what was asked for, else as many as pay for many prompts."""
    asked = config.get("parallel")
    if asked is not None:
        return int(asked)
    return _BATCH_PARALLEL if batch is not None else min(samples, _BATCH_PARALLEL)


def _batch(
    config: Config,
    engine: EngineParams,
    params: GenerationParams,
    source: str,
    prompt: str | None,
    files: list[Path],
    resume: Path | None,
    *,
    stats: bool,
) -> int:
    from localrun.cli.batch import check_files, run_batch

    check_files(source, resume)
    name = config.get("model")
    texts = [*(read_text_file(path).rstrip("\n") for path in files), *([prompt] if prompt else [])]
    _check(params.constraint)
    with ExitStack() as stack:
        return run_batch(
            open_engine(config, name, engine, stack),
            source,
            params,
            n_parallel=engine.n_parallel,
            system=config.get("system", name),
            prompt="\n\n".join(texts) or None,
            resume=resume,
            quiet=bool(config.get("quiet")),
            stats=stats,
        )


def _check(constraint: ConstraintSpec | None) -> None:
    """Refuse a constraint that is invalid or cannot be enforced, before a model is looked for."""
    if constraint is not None:
        from localrun.constraint import check

        check(constraint)


def _request(raw: bytes | None, text: str, config: Config, model: str | None, params: GenerationParams) -> Request:
    if raw is not None:
        if config.setting("system", model).origin == "flag":
            raise UsageError("--system needs the chat template, and --raw leaves it out")
        return Request(params, raw=raw)
    system = config.get("system", model)
    messages = [Message("system", system)] if system else []
    return Request(params, messages=(*messages, Message("user", text)))


def _writer(*, json_output: bool, events: bool, extract: bool, quiet: bool) -> Writer:
    if events:
        return EventsWriter()
    if json_output:
        return JsonWriter()
    if extract:
        return ExtractWriter(quiet=quiet)
    return TextWriter(quiet=quiet)


def _answer(responder: Responder, request: Request, writer: Writer, reading: ReadingLine, *, strict: bool) -> Result:
    """Run one request to its end."""
    for event in responder.respond(request):
        reading.hear(event)
        if strict and isinstance(event, WarningRaised):
            raise StrictError(event.warning.message, hint="--strict makes this warning an error")
        writer.write(event)
        if isinstance(event, Done):
            return event.result
    raise AssertionError("a responder ends with Done or an error")


def judge(result: Result, params: GenerationParams, *, strict: bool, trained: int = 0) -> None:
    """Raise the error that a finished answer deserves, if it does: incomplete where it had to be complete, or empty.

    `trained` is the longest context that the model was trained for; 0 where that is not known.
    """
    complete = result.finish in ("stop", "stop_string")
    if not complete and (params.constraint is not None or strict):
        can_grow = not trained or result.context_limit < trained
        hints = {
            "length": "raise --max-tokens",
            "context": "raise --ctx" if can_grow else "shorten the prompt: the context is all that the model knows",
            "timeout": "raise --timeout",
        }
        raise IncompleteOutputError(
            f"the output is incomplete: it was stopped by its {result.finish} limit after "
            f"{result.usage.completion_tokens:,} tokens",
            hint=hints[result.finish],
        )
    if not result.text and result.finish == "timeout":
        raise IncompleteOutputError("the time limit ended the answer before its first word", hint="raise --timeout")
    if not result.text and result.finish != "stop_string" and params.max_tokens != 0:
        if result.usage.reasoning_tokens:
            raise InvalidOutputError(
                f"the answer is empty: all {result.usage.completion_tokens:,} tokens were reasoning",
                hint="raise --max-tokens, or limit the reasoning with --think-budget",
            )
        raise InvalidOutputError("the answer is empty: the model ended at once")


def cut_off_note(result: Result) -> str:
    """One line for a person that an answer did not end by itself; nothing for one that did."""
    limits = {"length": "-n", "timeout": "--timeout", "context": "--ctx"}
    if result.finish not in limits or not result.text:
        return ""
    count = result.usage.completion_tokens
    tokens = f"{count:,} token{'' if count == 1 else 's'}"
    return f"note: cut off after {tokens} by the limit of {limits[result.finish]}\n"


def _show_prompt(responder: Responder, request: Request, *, as_json: bool) -> int:
    from localrun.local import LocalResponder

    if not isinstance(responder, LocalResponder):
        raise UsageError("--show-prompt needs the local engine: a remote one does not tell its prompt")
    encoded = responder.encode(request)
    raw = request.raw.decode("utf-8", "replace") if request.raw is not None else ""
    text = encoded.prompt.text if encoded.prompt is not None else raw
    if as_json:
        write_stdout(to_json({"prompt": text, "tokens": encoded.ids, "count": len(encoded.ids)}))
    else:
        write_stdout(text if not sys.stdout.isatty() or text.endswith("\n") else text + "\n")
        write_stderr(f"{len(encoded.ids):,} tokens\n")
    return 0
