"""`localrun bench`: how fast a model is here, what changed, and which settings are best.

Knows arguments, files and output; `localrun.bench` measures. Invariant: stdout carries the result (a report, or JSON),
what is being measured goes to stderr, and a file is written whole or not at all.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localrun.cli import options as o
from localrun.cli.fetch_progress import fetch_progress
from localrun.cli.opening import naming_origin
from localrun.cli.output import is_fancy, to_json, write_stderr, write_stdout
from localrun.cli.settings import load_config, one_model
from localrun.errors import OutputWriteError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from localrun.bench.figures import BenchResult, Comparison
    from localrun.bench.tune import Tuning
    from localrun.catalog import ModelFile
    from localrun.config import Config
    from localrun.params import EngineParams

_SUITES = ("quick", "full", "serve")


@o.takes(o.SPREAD)
def bench(
    model: Annotated[
        str | None, typer.Argument(help="The model; the default one if left out.", show_default=False)
    ] = None,
    model_too: o.ModelToo = None,
    suite: Annotated[str, typer.Option("--suite", help="quick, full or serve.", metavar="quick|full|serve")] = "quick",
    tune: Annotated[
        bool, typer.Option("--tune", help="Find the fastest settings of this model, and remember them.")
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    compare: Annotated[
        list[Path] | None,
        typer.Option(
            "--compare",
            help="An earlier result: show what changed beyond the noise. Twice: compare the two and measure nothing.",
            show_default=False,
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page with plots here.", show_default=False)
    ] = None,
    rate: Annotated[
        list[float] | None,
        typer.Option("--rate", help="serve: requests a second (repeatable).", show_default=False),
    ] = None,
    duration: Annotated[float, typer.Option("--duration", help="serve: seconds at each rate.")] = 20.0,
    ttft_target: Annotated[float, typer.Option("--ttft-target", help="serve: seconds to the first token.")] = 2.0,
    tpot_target: Annotated[float, typer.Option("--tpot-target", help="serve: seconds per output token.")] = 0.2,
    ctx: o.Ctx = None,
    threads: o.Threads = None,
    kv_type: o.KvType = None,
    flash_attention: o.FlashAttention = None,
    offline: o.Offline = None,
    quiet: o.Quiet = None,
    **settings: o.Setting,
) -> int:
    """Measure time to first token, time per token and throughput, with medians and spread."""
    model = one_model(model, model_too)
    config = load_config(locals() | settings)
    files = list(compare or [])
    _check(suite, files, rate or [], duration, ttft_target, tpot_target, tune=tune)
    if html is not None:
        _check_place(html)
    from localrun.bench.figures import load_result

    earlier = [load_result(path) for path in files]
    if len(earlier) == 2:
        _show(earlier[1], earlier[0], json_output=json_output, html=html)
        return 0
    name = model or config.get("model")
    params = config.engine(name)
    file = _find(name, config)
    say = _say(quiet=bool(config.get("quiet")))
    if tune:
        return _tune(file, params, say, json_output=json_output)
    from localrun.bench.run import run_bench
    from localrun.bench.suites import Target

    result = run_bench(
        file,
        params,
        suite,
        say=say,
        target=Target(ttft_target, tpot_target),
        rates=tuple(rate or ()),
        seconds=duration,
    )
    say("")
    _show(result, earlier[0] if earlier else None, json_output=json_output, html=html)
    return 0


def _check(
    suite: str, files: list[Path], rates: list[float], duration: float, ttft: float, tpot: float, *, tune: bool
) -> None:
    """Raise `UsageError` for what makes no sense, before anything is loaded."""
    if suite not in _SUITES:
        raise UsageError(f"there is no suite {suite!r}", hint=f"the suites are {', '.join(_SUITES)}")
    if len(files) > 2:
        raise UsageError(f"--compare was given {len(files)} times; it takes one or two results")
    if tune and files:
        raise UsageError("--tune and --compare exclude each other")
    for flag, value in (("--duration", duration), ("--ttft-target", ttft), ("--tpot-target", tpot)):
        if not 0 < value <= 86_400:
            raise UsageError(f"{flag} is {value:g}; it is a number of seconds above 0")
    for rate in rates:
        if not 0 < rate <= 1000:
            raise UsageError(f"--rate is {rate:g}; it is a number of requests a second above 0")


def _check_place(page: Path) -> None:
    """Refuse a page that cannot be written before anything is measured."""
    if not page.parent.is_dir():
        raise OutputWriteError.of(str(page), OSError(errno.ENOENT, os.strerror(errno.ENOENT)))
    if not os.access(page.parent, os.W_OK):
        raise OutputWriteError.of(str(page), OSError(errno.EACCES, os.strerror(errno.EACCES)))


def _find(name: str | None, config: Config) -> ModelFile:
    from localrun.catalog import load_catalogue, resolve

    progress = fetch_progress(quiet=bool(config.get("quiet")))
    with naming_origin(config, name):
        return resolve(name or load_catalogue().default, offline=bool(config.get("offline")), progress=progress)


def _say(*, quiet: bool) -> Callable[[str], None]:
    """Tells on stderr what is being measured: in place on a terminal, not at all elsewhere. "" ends it."""
    if quiet or not is_fancy(sys.stderr):
        return lambda _: None
    return lambda text: write_stderr(f"\r\x1b[K{text} …" if text else "\r\x1b[K")


def _show(result: BenchResult, earlier: BenchResult | None, *, json_output: bool, html: Path | None) -> None:
    from localrun.bench.charts import comparison_text, result_text
    from localrun.bench.figures import compare
    from localrun.bench.html import result_page

    comparison = compare(earlier, result) if earlier is not None else None
    if html is not None:
        _write(html, result_page(result, comparison))
    if json_output:
        data = result.as_json()
        if comparison is not None:
            data["comparison"] = _comparison_json(comparison)
        write_stdout(to_json(data))
        return
    write_stdout(result_text(result))
    if comparison is not None:
        write_stdout("\n" + comparison_text(comparison))


def _comparison_json(comparison: Comparison) -> dict[str, Any]:
    return {
        "changes": [
            {
                "name": change.figure.name,
                "before": change.before,
                "after": change.after,
                "ratio": change.ratio,
                "noise": change.noise,
                "real": change.is_real,
                "better": change.is_better,
            }
            for change in comparison.changes
        ],
        "warnings": list(comparison.warnings),
        "missing": list(comparison.missing),
    }


def _tune(file: ModelFile, params: EngineParams, say: Callable[[str], None], *, json_output: bool) -> int:
    from localrun.bench.tune import tune

    tuning = tune(file.path, params, say=say)
    say("")
    write_stdout(to_json({"model": file.name, **tuning.as_json()}) if json_output else _tuning_text(file.name, tuning))
    return 0


def _tuning_text(name: str, tuning: Tuning) -> str:
    best = tuning.best
    lines = [f"{name}: measured for {tuning.seconds:.0f} s"]
    for trial in tuning.trials:
        change = trial.tps / trial.best_tps - 1 if trial.best_tps else 0.0
        what = f"{trial.what.replace('_', ' ')} {_word(trial.value)}"
        kept = "  kept" if trial.is_better else ""
        lines.append(f"  {what:<24} {trial.kind:<8} {trial.tps:>8,.1f} tokens/s  {100 * change:+.0f} %{kept}")
    lines.append(
        f"best: flash attention {_word(best.flash_attention)}, {best.threads} threads for decoding, "
        f"{best.threads_prefill} for prompts, batches of {best.n_ubatch}"
    )
    if not tuning.complete:
        lines.append("the time ran out before everything was tried: what was found so far counts")
    remembered = "it is used from now on" if tuning.remembered else "the cache cannot be written: it is not remembered"
    return "\n".join([*lines, remembered]) + "\n"


def _word(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, "utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OutputWriteError.of(str(path), error) from error
