"""The quality report as a value: what was measured, how it is kept in the file, and read again.

Knows figures and metadata keys; no layout. Invariant: the place for the report in a file has a fixed size, so that it
can be filled in after the file is complete without moving a byte.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gguf.constants import GGUFValueType

from quantize.errors import DestinationError
from quantize.model import MetadataValue
from quantize.progress import ProgressCallback
from quantize.writer import replacing

if TYPE_CHECKING:
    from quantize.plan import Plan, PlannedFile
    from quantize.verify import Evaluation

KEY = "localrun.quantize.report"
_ROOM = 2048
"""Bytes for the report inside the file."""

_NOT_MEASURED = b'{"status":"not measured"}'


@dataclass(frozen=True, slots=True)
class Sibling:
    """Another quantized file of the same model, with the figures it carries."""

    name: str
    recipe: str
    bytes: int
    divergence: float


@dataclass(frozen=True, slots=True)
class QualityReport:
    """What quantization did to a model."""

    model: str
    recipe: str
    bytes: int
    bits_per_weight: float
    base: str
    base_bytes: int
    evaluation: Evaluation
    errors: dict[str, float]
    """Tensor → mean squared error in units of its mean square."""
    types: dict[str, str]
    """Tensor → type."""
    siblings: tuple[Sibling, ...] = ()
    engine: str = field(default_factory=lambda: "llama-cpp-python " + version("llama-cpp-python"))

    def as_json(self) -> dict[str, Any]:
        """Everything, as plain values."""
        found = self.evaluation
        return {
            "model": self.model,
            "recipe": self.recipe,
            "bytes": self.bytes,
            "bits_per_weight": round(self.bits_per_weight, 4),
            "base": {"name": self.base, "bytes": self.base_bytes},
            "overall": found.overall.as_json(),
            "slices": [{"name": s.name, "chunks": s.chunks, **s.statistics.as_json()} for s in found.slices],
            "causes": [
                {"name": c.name, "drawn_differently": c.drawn_differently, "divergence": c.divergence}
                for c in found.causes
            ],
            "tensors": [
                {"name": name, "type": self.types[name], "relative_error": error} for name, error in self.errors.items()
            ],
            "siblings": [
                {"name": s.name, "recipe": s.recipe, "bytes": s.bytes, "divergence": s.divergence}
                for s in self.siblings
            ],
            "seconds": round(found.seconds, 3),
            "engine": self.engine,
        }

    def summary(self) -> dict[str, Any]:
        """The part that is kept in the file."""
        keys = ["positions", "perplexity_base", "perplexity", "divergence", "divergence_error", "divergence_999"]
        keys += ["same_top", "rms_probability_change"]
        overall = self.evaluation.overall.as_json()
        slices = {
            s.name[:24]: {
                "divergence": _short(s.statistics.divergence),
                "same_top": _short(s.statistics.same_top),
                "perplexity": _short(s.statistics.perplexity),
                "perplexity_base": _short(s.statistics.perplexity_base),
            }
            for s in self.evaluation.slices[:6]
        }
        return {
            "status": "measured",
            **{key: _short(overall[key]) for key in keys},
            "slices": slices,
            "base": self.base[:80],
            "engine": self.engine,
        }

    def store(self, file: PlannedFile) -> None:
        """Write the summary into the place that the file has for it.

        Raises:
            DestinationError: the file cannot be written.
        """
        position = file.header.find(_padded(_NOT_MEASURED))
        if position < 0:
            return
        text = json.dumps(self.summary(), separators=(",", ":")).encode()
        try:
            with open(file.path, "r+b") as out:
                out.seek(position)
                out.write(_padded(text))
                out.flush()
                os.fsync(out.fileno())
        except OSError as error:
            raise DestinationError(
                f"cannot write {file.path}: {error.strerror}", hint="the file itself is whole"
            ) from error


def placeholder() -> dict[str, MetadataValue]:
    """The key for the report, before anything was measured. Spaces after JSON are part of the format."""
    return {KEY: MetadataValue(_padded(_NOT_MEASURED), GGUFValueType.STRING)}


def stored_summary(text: str) -> dict[str, Any] | None:
    """The summary from the value of `KEY`; None where nothing was measured, or the text is no report."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("status") == "measured" else None


def measure(
    base: Path,
    quantized: Path,
    *,
    base_name: str,
    errors: dict[str, float],
    plan: Plan,
    threads: int,
    gpu_layers: int = 0,
    evaluation_files: Sequence[Path] = (),
    progress: ProgressCallback | None = None,
) -> QualityReport:
    """Run both files over the evaluation text. Raises what `verify.evaluate` says."""
    from quantize.errors import UnsupportedError
    from quantize.report.siblings import siblings  # reads files: only where a report is made
    from quantize.runtime import LoadedModel  # loads the engine
    from quantize.verify import evaluate
    from quantize.verify.slices import default_slices, file_slices

    with LoadedModel(base, gpu_layers=gpu_layers) as model:
        if not model.can_generate:
            raise UnsupportedError(f"{base.name} predicts no tokens", hint="compare embeddings instead")
        if evaluation_files:
            slices = file_slices(model, list(evaluation_files))
        else:
            slices = default_slices(model, threads=threads, progress=progress)
    evaluation = evaluate(base, quantized, slices, threads=threads, gpu_layers=gpu_layers, progress=progress)
    return QualityReport(
        model=quantized.name,
        recipe=plan.recipe,
        bytes=plan.size,
        bits_per_weight=plan.bits_per_weight,
        base=base_name,
        base_bytes=base.stat().st_size,
        evaluation=evaluation,
        errors=errors,
        types={planned.choice.tensor.name: planned.choice.type.name.lower() for planned in plan.tensors},
        siblings=siblings(quantized, plan.n_parameters),
    )


def write_reports(report: QualityReport, files: Sequence[Path]) -> None:
    """Write the report as `.json` or `.html`, by the ending of each file; each complete or not at all.

    Raises:
        DestinationError: a file cannot be written.
    """
    for path in files:
        if path.suffix.lower() in {".html", ".htm"}:
            from quantize.report.page import render_page

            text = render_page(report)
        else:
            text = json.dumps(report.as_json(), indent=1) + "\n"
        try:
            with replacing(path) as file:
                file.write(text.encode())
        except OSError as error:
            raise DestinationError(f"cannot write {path}: {error.strerror}", hint="choose another --report") from error


def _padded(text: bytes) -> bytes:
    if len(text) > _ROOM:
        text = b'{"status":"too long"}'
    return text.ljust(_ROOM)


def _short(value: float) -> float:
    return float(f"{value:.6g}")
