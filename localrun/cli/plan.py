"""`localrun plan`: what would fit this machine, before anything is downloaded or loaded.

Knows arguments and output; `hardware` does the counting. Invariant: the header alone is read, here or from afar, and
no weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localrun.cli import options as o
from localrun.cli.output import to_json, write_stderr, write_stdout
from localrun.cli.settings import load_config, one_model
from localrun.errors import DoesNotFitError, ModelFileError, OfflineError

if TYPE_CHECKING:
    from localrun.config import Config
    from localrun.gguf import GGUFHeader
    from localrun.hardware.devices import Device, Memory
    from localrun.hardware.options import Option, Version
    from localrun.hardware.planner import LoadPlan, Planner
    from localrun.hardware.shape import ModelShape
    from localrun.hardware.tuning import MeasuredSpeed
    from localrun.params import EngineParams


@o.takes(o.SPREAD)
def plan(
    model: Annotated[
        str | None, typer.Argument(help="The model; the default one if left out.", show_default=False)
    ] = None,
    model_too: o.ModelToo = None,
    ctx: o.Ctx = None,
    parallel: Annotated[int | None, typer.Option("--parallel", help="Sequences at a time.", show_default=False)] = None,
    kv_type: o.KvType = None,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    offline: o.Offline = None,
    quiet: o.Quiet = None,
    **settings: o.Setting,
) -> int:
    """Show what fits: layers on the GPU, context, KV type and quantization, before downloading."""
    from localrun.catalog import load_catalogue
    from localrun.local.loading import unused_gpu_settings

    model = one_model(model, model_too)
    config = load_config(locals() | settings)
    name = model or config.get("model") or load_catalogue().default
    params = config.engine(name)
    with _subject(name, offline=bool(config.get("offline"))) as subject:
        report = _report(subject, params, config)
        if not report.devices and not config.get("quiet"):
            for flag in unused_gpu_settings(params):
                write_stderr(f"warning: {flag} was given, but the engine sees no GPU\n")
        if json_output:
            write_stdout(to_json(report.as_json()))
        else:
            write_stdout(report.as_text())
            if not subject.here and not config.get("quiet"):
                write_stderr(f"read {subject.bytes_read / 1e6:.1f} MB of its header; the weights were not fetched\n")
        if report.refusal is not None:
            raise report.refusal
    return 0


@dataclass(frozen=True)
class _Subject:
    """The model to plan for: its header, and the versions there are of it."""

    name: str
    header: GGUFHeader
    versions: list[Version]
    here: bool
    bytes_read: int = 0


@contextmanager
def _subject(name: str, *, offline: bool) -> Iterator[_Subject]:
    from localrun.catalog import find
    from localrun.gguf import check_runnable, read_header
    from localrun.hardware.options import Version

    file = find(name)
    if file is not None:
        header = read_header(file.path, vocabulary=False)
        yield _Subject(file.name, header, [Version(header.quantization, _weights(header))], here=True)
        return
    if offline:
        raise OfflineError(
            f"{name} is not on this machine, and nothing may be asked offline",
            hint="run the command once with a network: it reads the header alone",
        )
    from localrun.catalog.remote_header import remote_model

    with remote_model(name) as remote:
        header = remote.header
        check_runnable(header, vocabulary=False)
        overhead = header.file_size - _weights(header)
        versions = [Version(v.name, max(1, v.size - overhead)) for v in remote.quantizations]
        if header.quantization not in {version.name for version in versions}:
            versions.append(Version(header.quantization, _weights(header)))
        yield _Subject(name, header, versions, here=False, bytes_read=remote.bytes_read)


def _weights(header: GGUFHeader) -> int:
    return sum(tensor.n_bytes for tensor in header.tensors)


@dataclass(frozen=True)
class _Report:
    """Everything that is shown."""

    subject: _Subject
    shape: ModelShape
    params: EngineParams
    memory: Memory
    devices: list[Device]
    plan: LoadPlan | None
    refusal: DoesNotFitError | None
    planner: Planner
    table: list[Option]
    advice: str
    bandwidth: float | None
    measured: MeasuredSpeed | None
    correction: float

    def as_json(self) -> dict[str, Any]:
        header, plan = self.subject.header, self.plan
        return {
            "model": {
                "name": self.subject.name,
                "here": self.subject.here,
                "architecture": header.architecture,
                "parameters": header.parameters,
                "quantization": header.quantization,
                "weight_bytes": self.shape.weight_bytes,
                "active_bytes": self.shape.active_bytes,
                "trained_context": self.planner.trained,
            },
            "machine": {
                "memory": asdict(self.memory),
                "devices": [asdict(device) | {"budget": device.budget} for device in self.devices],
                "bandwidth": self.bandwidth,
                "correction": self.correction,
            },
            "plan": None if plan is None else _plan_json(plan, self._rooflines()),
            "problem": self.refusal.message if self.refusal is not None else None,
            "measured": asdict(self.measured) if self.measured is not None else None,
            "options": [asdict(option) | {"good": option.good} for option in self.table],
            "advice": self.advice,
        }

    def as_text(self) -> str:
        parts = [self._model_lines(), self._plan_lines(), self._speed_lines(), self._table_lines()]
        return "\n".join("\n".join(part) + "\n" for part in parts if part) + f"\n{self.advice}\n"

    def _rooflines(self) -> list[tuple[int, float]]:
        """(depth, tokens a second at most): only where RAM alone delivers."""
        from localrun.hardware.planner import context_size
        from localrun.hardware.speed import speed_bound

        if self.plan is None or self.bandwidth is None or self.plan.gpu_layers or self.plan.pages_from_disk:
            return []
        context = context_size(self.shape, self.params, self.plan.n_ctx, flash=False)
        depths = sorted({0, min(4096, self.plan.n_ctx), self.plan.n_ctx})
        bounds = [speed_bound(self.shape, context, depth, self.bandwidth) for depth in depths]
        return [(bound.depth, bound.tokens_per_second) for bound in bounds]

    def _model_lines(self) -> list[str]:
        header = self.subject.header
        ram = f"{_size(self.memory.available)} of {_size(self.memory.total)} free"
        cards = [f"{d.name} ({d.kind}, {_size(d.free)} of {_size(d.total)} free)" for d in self.devices]
        count = header.parameters
        size = f"{count / 1e9:.1f}B" if count >= 999.5e6 else f"{count / 1e6:.0f}M"
        return [
            f"model    {self.subject.name}: {header.architecture}, {size} parameters, {header.quantization}, "
            f"{_size(self.shape.weight_bytes)}, trained for {self.planner.trained:,} tokens",
            f"memory   {ram}",
            f"gpu      {'; '.join(cards) if cards else 'none that the engine sees'}",
        ]

    def _plan_lines(self) -> list[str]:
        from localrun.hardware.placement import all_layers

        if self.plan is None:
            return ["fits     no"]
        plan = self.plan
        layers = f", {plan.gpu_layers} of {all_layers(self.shape)} layers on the GPU" if self.devices else ""
        parallel = f" for each of {plan.n_parallel} sequences" if plan.n_parallel > 1 else ""
        flash = ", flash attention on" if plan.flash_attention else ""
        lines = [f"fits     a context of {plan.n_ctx:,} tokens{parallel}, KV {plan.kv_type}{layers}{flash}"]
        rows = [("RAM", plan.placement.ram, self.memory.budget)]
        rows += [(d.name, need, d.budget) for d, need in zip(self.devices, plan.placement.gpus, strict=True)]
        table: list[tuple[str, ...]] = [("", "WEIGHTS", "KV CACHE", "STATE", "COMPUTE", "TOTAL", "MAY TAKE")]
        for name, need, budget in rows:
            figures = (need.weights, need.kv, need.state, need.compute, need.total, budget)
            table.append((name, *(_size(figure) if figure else "-" for figure in figures)))
        lines += _columns(table, indent="         ")
        lines += [f"note     {notice.message}" for notice in plan.notices]
        return lines

    def _speed_lines(self) -> list[str]:
        lines = []
        if bounds := self._rooflines():
            assert self.bandwidth is not None
            figures = ", ".join(f"{_rate(rate)} tokens/s at depth {depth:,}" for depth, rate in bounds)
            lines.append(f"speed    at most {figures} (memory reads {self.bandwidth / 1e9:.0f} GB/s)")
        if self.measured is not None:
            m = self.measured
            lines.append(
                f"measured {_rate(m.decode_tps)} tokens/s at depth {m.depth:,}, prompt {_rate(m.prefill_tps)} tokens/s"
            )
        elif self.subject.here:
            lines.append("measured not yet: `localrun bench` does it")
        return lines

    def _table_lines(self) -> list[str]:
        from localrun.hardware.options import length

        lengths = sorted({option.n_ctx for option in self.table})
        head = ("QUANTIZATION", "WEIGHTS", "KV", *(length(n) for n in lengths))
        rows: list[tuple[str, ...]] = [head]
        by_row: dict[tuple[str, str], list[Option]] = {}
        for option in self.table:
            by_row.setdefault((option.version, option.kv_type), []).append(option)
        for (version, kv_type), found in by_row.items():
            cells = tuple(_cell(option, bool(self.devices)) for option in found)
            rows.append((version, _size(found[0].weight_bytes), kv_type, *cells))
        legend = "memory in all for each context"
        legend += "; - does not fit" + ("; (n) only n layers fit on the GPU" if self.devices else "")
        return [*_columns(rows), legend]


def _report(subject: _Subject, params: EngineParams, config: Config) -> _Report:
    from localrun.hardware.bandwidth import memory_bandwidth
    from localrun.hardware.correction import memory_correction
    from localrun.hardware.devices import system_memory
    from localrun.hardware.options import KV_TYPES, advice, contexts, options
    from localrun.hardware.planner import Planner
    from localrun.hardware.shape import model_shape
    from localrun.local.devices import devices_for

    shape = model_shape(subject.header)
    if not shape.is_known:
        raise ModelFileError(
            f"{subject.name} does not say how many layers and heads it has",
            hint="it is no language model, or was made by another tool",
        )
    devices = devices_for(params)
    memory, correction = system_memory(), memory_correction()
    planner = Planner(shape, params, devices, memory, correction)
    plan, refusal = None, None
    try:
        plan = planner.plan()
    except DoesNotFitError as error:
        refusal = error
    chosen = config.get("kv_type", subject.name)
    table = options(
        shape,
        subject.versions,
        replace(params, n_ctx=None, kv_type="f16"),
        devices,
        memory,
        lengths=contexts(planner.trained, [params.n_ctx] if params.n_ctx else []),
        kv_types=(params.kv_type,) if chosen else KV_TYPES,
        correction=correction,
    )
    return _Report(
        subject, shape, params, memory, devices, plan, refusal, planner, table,
        advice=advice(table, planner.trained),
        bandwidth=memory_bandwidth(),
        measured=_measured(subject),
        correction=correction,
    )  # fmt: skip


def _measured(subject: _Subject) -> MeasuredSpeed | None:
    from localrun.gguf import fingerprint
    from localrun.hardware.tuning import load_speed

    return load_speed(fingerprint(subject.header.path)) if subject.here else None


def _plan_json(plan: LoadPlan, bounds: list[tuple[int, float]]) -> dict[str, Any]:
    return {
        "ctx": plan.n_ctx,
        "parallel": plan.n_parallel,
        "kv_type": plan.kv_type,
        "flash_attention": plan.flash_attention,
        "gpu_layers": plan.gpu_layers,
        "experts_in_ram": plan.placement.experts_in_ram,
        "pages_from_disk": plan.pages_from_disk,
        "total_bytes": plan.placement.total,
        "ram": asdict(plan.placement.ram),
        "gpus": [asdict(need) for need in plan.placement.gpus],
        "speed_at_most": [{"depth": depth, "tokens_per_second": round(rate, 1)} for depth, rate in bounds],
        "warnings": [asdict(notice) for notice in plan.notices],
    }


def _cell(option: Option, has_gpu: bool) -> str:
    if not option.fits:
        return "-"
    partly = f" ({option.gpu_layers})" if has_gpu and not option.whole_on_gpu else ""
    return _size(option.total_bytes) + partly


def _size(n_bytes: float) -> str:
    from localrun.catalog.storage import human_size

    return human_size(n_bytes)


def _rate(tokens_per_second: float) -> str:
    return f"{tokens_per_second:.0f}" if tokens_per_second >= 20 else f"{tokens_per_second:.1f}"


def _columns(rows: Sequence[tuple[str, ...]], indent: str = "") -> list[str]:
    """Rows as text: the first column to the left, figures to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines
