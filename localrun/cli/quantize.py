"""The command `quantize`: a checkpoint or GGUF file in, a quantized GGUF file out.

Knows arguments, streams and how the library's errors map to ours; the library does the work. Invariant: stdout carries
the result alone (the file's name, a table, or JSON), everything else goes to stderr.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localrun.cli.quantize_progress import how_far

if TYPE_CHECKING:
    from quantize.conversion import Conversion
    from quantize.plan import Plan
    from quantize.settings import Result

_REPO = re.compile(r"(?:hf:)?([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)", re.ASCII)
_EFFORTS = ("fast", "normal", "high")


def quantize(
    source: Annotated[str, typer.Argument(metavar="SRC", help="A checkpoint folder, a hub id, or a GGUF model.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The file to write.")] = None,
    type_: Annotated[
        str | None, typer.Option("-t", "--type", help="q4_k_m, q8_0, bf16, iq4_xs, …; copy keeps the types.")
    ] = None,
    size: Annotated[str | None, typer.Option("--size", help="Not there yet: the largest size.")] = None,
    bpw: Annotated[float | None, typer.Option("--bpw", help="Not there yet: bits per weight.")] = None,
    effort: Annotated[
        str, typer.Option("--effort", help="fast: as llama-quantize; normal: importance matrix.")
    ] = "normal",
    imatrix: Annotated[
        str | None, typer.Option("--imatrix", metavar="auto|off|FILE", help="Importance matrix.")
    ] = None,
    calibration: Annotated[Path | None, typer.Option("--calibration", help="Text for the importance matrix.")] = None,
    save_imatrix: Annotated[Path | None, typer.Option("--save-imatrix", help="Keep the collected matrix.")] = None,
    tensor: Annotated[
        list[str] | None, typer.Option("--tensor", metavar="REGEX=TYPE", help="Force a type (repeatable).")
    ] = None,
    pure: Annotated[bool, typer.Option("--pure", help="The same type for every tensor.")] = False,
    prune_layers: Annotated[str | None, typer.Option("--prune-layers", metavar="A-B", help="Leave layers out.")] = None,
    split: Annotated[str | None, typer.Option("--split", metavar="SIZE", help="Files of at most this size.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that no earlier run made.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be written.")] = False,
    report: Annotated[
        list[Path] | None, typer.Option("--report", help="Write the quality report: .json or .html (repeatable).")
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Do not measure the quality.")] = False,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Threads; default: all cores.")] = None,
    gpu_layers: Annotated[int, typer.Option("--gpu-layers", min=0, help="Layers on the GPU when measuring.")] = 0,
    pre_tokenizer: Annotated[
        str | None, typer.Option("--pre-tokenizer", help="llama.cpp's name of the pre-tokenizer, if it is unknown.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one result object.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings are errors.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Make no request.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Say nothing on stderr.")] = False,
) -> None:
    """Make a model smaller, and measure what that costs.

    An interrupted run goes on where it stopped when the same command is given again.
    """
    _refuse_what_is_not_there(size, bpw, effort)
    _check_flags(type_, report, no_report=no_report, dry_run=dry_run)
    _check_names(source, output, report)
    path, name = _local_source(source, offline=offline, quiet=quiet)
    with _mapped_errors():
        from quantize.conversion import Conversion
        from quantize.settings import Settings

        settings = Settings(
            type=type_ or "",
            tensors=tuple(tensor or ()),
            pure=pure,
            prune_layers=prune_layers,
            split=split,
            imatrix=("off" if effort == "fast" else "auto") if imatrix is None else imatrix,
            exact=effort == "fast",
            calibration=calibration,
            save_imatrix=save_imatrix,
            report=not no_report,
            report_files=tuple(report or ()),
            threads=threads,
            gpu_layers=gpu_layers,
            pre_tokenizer=pre_tokenizer,
            name=name,
            force=force,
        )
        prepared = Conversion(path, output, settings)
        if dry_run:
            _show_plan(prepared.plan, as_json)
            _warn(prepared.warnings, strict, quiet)
            return
        result = _run(prepared, strict=strict, quiet=quiet)
    _show_result(result, as_json=as_json, quiet=quiet)


def _run(prepared: Conversion, *, strict: bool, quiet: bool) -> Result:
    """Carry out what was prepared; warnings that are known before come before."""
    prepared.check_destination()
    _warn(prepared.warnings, strict, quiet)
    told = len(prepared.warnings)
    shown = how_far(quiet=quiet)
    try:
        result = prepared.run(None if shown is None else shown.update)
    except KeyboardInterrupt:
        if shown is not None:
            shown.end_line()
            _say(f"stopped; {shown.what_is_left}")
        raise
    _warn(result.warnings[told:], strict=False, quiet=quiet)
    return result


def _show_result(result: Result, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        _print(json.dumps(result.as_json(), indent=1))
        return
    if result.quality is not None and not quiet:
        from rich.console import Console

        from quantize.report.table import quality_table

        width = None if sys.stderr.isatty() else 120
        Console(stderr=True, width=width).print(quality_table(result.quality))
    for file in result.files:
        _print(str(file))


def _check_flags(type_: str | None, report: list[Path] | None, *, no_report: bool, dry_run: bool) -> None:
    from localrun.errors import UsageError

    if type_ is None:
        raise UsageError("no --type is given", hint="for example --type q4_k_m, or q8_0 for nearly no loss")
    if report and (no_report or dry_run):
        raise UsageError("--report needs a report", hint=f"drop {'--no-report' if no_report else '--dry-run'}")


def _check_names(source: str, output: Path | None, report: list[Path] | None) -> None:
    """Refuse names that cannot be meant before anything is fetched."""
    from localrun.errors import UsageError

    if not source:
        raise UsageError("the source is an empty name", hint="a checkpoint folder, a hub id, or a GGUF model")
    if output is None and not report:
        return
    with _mapped_errors():
        from quantize.destination import check_output_name, check_report_names

        if output is not None:
            check_output_name(output)
        check_report_names(report or ())


def _refuse_what_is_not_there(size: str | None, bpw: float | None, effort: str) -> None:
    from localrun.errors import UsageError

    if size is not None or bpw is not None:
        flag = "--size" if size is not None else "--bpw"
        raise UsageError(
            f"{flag} is not there yet: types cannot be chosen for a size", hint="use --type; --dry-run shows the size"
        )
    if effort not in _EFFORTS:
        raise UsageError(f"unknown effort '{effort}'", hint="fast or normal")
    if effort == "high":
        raise UsageError("--effort high is not there yet", hint="normal collects an importance matrix")


def _local_source(source: str, *, offline: bool, quiet: bool) -> tuple[Path, str | None]:
    """The folder or file on this machine, and for a hub id the model's name. Other names of models work too."""
    path = Path(source).expanduser()
    if path.exists():
        return path, None
    hub = None if path.suffix == ".gguf" and not source.startswith("hf:") else _REPO.fullmatch(source)
    if hub is None and ":" not in source:
        from localrun.errors import ModelNotFoundError

        raise ModelNotFoundError(
            f"{source} does not exist", hint="SRC is a checkpoint folder, a GGUF file, owner/name, or a model's name"
        )
    if hub is None:
        from localrun.catalog import resolve
        from localrun.cli.fetch_progress import fetch_progress

        return resolve(source, offline=offline, progress=fetch_progress(quiet=quiet)).path, None
    from localrun.catalog.hub_cache import find_checkpoint, hub_is_forbidden
    from localrun.errors import ModelNotFoundError

    repo = hub[1]
    name = repo.split("/")[1]
    if offline or hub_is_forbidden():
        cached = find_checkpoint(repo)
        if cached is None:
            raise ModelNotFoundError(f"{source} is not on this machine", hint="without --offline it is fetched")
        return cached, name
    from localrun.catalog.hub import fetch_checkpoint
    from localrun.cli.fetch_progress import fetch_progress

    return fetch_checkpoint(repo, fetch_progress(quiet=quiet)), name


@contextmanager
def _mapped_errors() -> Iterator[None]:
    """The library's errors as ours, with the exit code that fits."""
    from localrun import errors
    from quantize import errors as theirs

    kinds: tuple[tuple[type[theirs.QuantizeError], type[errors.LocalrunError]], ...] = (
        (theirs.SourceError, errors.ModelFileError),
        (theirs.RecipeError, errors.UsageError),
        (theirs.NoSpaceError, errors.OutputWriteError),
        (theirs.DestinationError, errors.UsageError),
        (theirs.MemoryLimitError, errors.DoesNotFitError),
        (theirs.WeightError, errors.ModelFileError),
        (theirs.QuantizeError, errors.EngineError),
    )
    try:
        yield
    except theirs.QuantizeError as error:
        ours = next(ours for kind, ours in kinds if isinstance(error, kind))
        raise ours(error.message, hint=error.hint) from error


def _show_plan(plan: Plan, as_json: bool) -> None:
    if as_json:
        _print(json.dumps(plan.as_json(), indent=1))
        return
    from rich.console import Console

    from quantize.report.table import plan_table

    width = None if sys.stdout.isatty() else 160
    Console(width=width, soft_wrap=True).print(plan_table(plan))


def _warn(warnings: list[str], strict: bool, quiet: bool) -> None:
    if warnings and strict:
        from localrun.errors import StrictError

        raise StrictError(warnings[0], hint="without --strict this is a warning")
    for warning in warnings:
        _say(f"warning: {warning}", quiet)


def _say(text: str, quiet: bool = False) -> None:
    if not quiet:
        from localrun.cli.output import write_stderr

        write_stderr(text + "\n")


def _print(text: str) -> None:
    from localrun.cli.output import write_stdout

    write_stdout(text + "\n")
