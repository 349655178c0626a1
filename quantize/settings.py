"""What the user asks for, and what they get: the values at both ends of a conversion."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quantize.pipeline import PassResult
    from quantize.plan import Plan
    from quantize.report.quality import QualityReport


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user asked for; see `convert`."""

    type: str = "q4_k_m"
    """A named mix of llama.cpp, or `copy`."""
    tensors: tuple[str, ...] = ()
    """`REGEX=TYPE`: types that are forced."""
    pure: bool = False
    """The mix's base type for every tensor."""
    prune_layers: str | None = None
    """Layers to leave out: `4-7,12`."""
    split: str | None = None
    """The largest size of one file: `2GB`."""
    imatrix: str | Path = "auto"
    """`auto`, `off`, or a file."""
    calibration: Path | None = None
    """Text for the importance matrix; None takes the default text."""
    save_imatrix: Path | None = None
    """Where to keep a collected matrix."""
    report: bool = True
    """Measure the quality."""
    report_files: tuple[Path, ...] = ()
    """`.json` and `.html` files to write the report to."""
    exact: bool = False
    """With a matrix, round as llama-quantize does, to the byte."""
    threads: int | None = None
    """None: every core for the pass, the idle ones for the engine."""
    gpu_layers: int = 0
    """Layers on the GPU while the engine runs."""
    pre_tokenizer: str | None = None
    """llama.cpp's name of the pre-tokenizer, where it cannot be derived."""
    name: str | None = None
    """The model's name; None takes the source's."""
    force: bool = False
    """Replace existing files that no earlier run made."""


@dataclass(slots=True)
class Result:
    """What was made."""

    files: tuple[Path, ...]
    plan: Plan
    seconds: float
    pass_result: PassResult
    matrix: str
    """`off`, `auto`, or the file."""
    quality: QualityReport | None
    warnings: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        done = self.pass_result
        plan = self.plan.as_json()
        return {
            "files": [str(path) for path in self.files],
            **{key: plan[key] for key in ("recipe", "architecture", "parameters", "bytes", "bits_per_weight")},
            "source_bytes": self.plan.source_bytes,
            "substitutions": plan["substitutions"],
            "imatrix": self.matrix,
            "timings": {
                "total_s": round(self.seconds, 3),
                "quantize_s": round(done.seconds, 3),
                "quantize_cpu_s": round(done.cpu_seconds, 3),
            },
            "bytes_written": done.bytes_written,
            "resumed_slabs": done.resumed,
            "quality": None if self.quality is None else self.quality.as_json(),
            "warnings": self.warnings,
        }
