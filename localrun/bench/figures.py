"""Results of a benchmark: figures with their samples, the file they are kept in, and what differs between two.

Knows statistics and JSON; measures nothing. Invariants: a figure keeps every sample it was made of, and two figures
differ only if they differ by more than both of them vary.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from localrun.errors import InputError

FORMAT = 1
_LEAST_CHANGE = 0.03
"""A change below three percent is never told: clocks, caches and thermals do that from one minute to the next."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity."""

    name: str
    """Stable, with what it depends on: `tpot/depth=512`."""
    label: str
    unit: str
    samples: tuple[float, ...]
    higher_is_better: bool = True
    group: str = ""
    """Figures of a group make one chart."""
    x: float | None = None
    """Where it stands on the chart's axis: tokens, depth, sequences, requests a second."""
    bytes_per_token: int | None = None
    """What one token reads, for figures that memory bounds."""
    roofline_share: float | None = None
    """The part reached of what memory bandwidth allows."""

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """Standard deviation as the median absolute deviation tells it (times 1.4826), which outliers cannot move."""
        middle = self.median
        return 1.4826 * statistics.median([abs(sample - middle) for sample in self.samples])

    @property
    def low(self) -> float:
        return min(self.samples)

    @property
    def high(self) -> float:
        return max(self.samples)


@dataclass(slots=True)
class BenchResult:
    """All figures of one run, and what they depend on."""

    suite: str
    machine: dict[str, Any]
    model: dict[str, Any]
    settings: dict[str, Any]
    bandwidth: float | None
    started: str
    """UTC, ISO 8601."""
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What may have disturbed the run."""

    def of(self, name: str) -> Figure | None:
        """The figure with this name."""
        return next((figure for figure in self.figures if figure.name == name), None)

    def as_json(self) -> dict[str, Any]:
        data = {"format": FORMAT, **asdict(self)}
        for entry, figure in zip(data["figures"], self.figures, strict=True):
            entry["median"], entry["spread"] = figure.median, figure.spread
        return data


def load_result(path: Path) -> BenchResult:
    """Read a result that `bench --json` wrote. Raises `InputError` for anything else."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{path} is no JSON: {error}", hint="write it with `localrun bench --json > FILE`") from error
    try:
        if data["format"] != FORMAT:
            raise InputError(f"{path} has the format {data['format']!r}, this version reads {FORMAT}")
        figures = [_figure(entry) for entry in data["figures"]]
        keys = ("suite", "machine", "model", "settings", "bandwidth", "started", "notes")
        return BenchResult(figures=figures, **{key: data[key] for key in keys})
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} is no result of a benchmark: {error}", hint="write it with `localrun bench --json > FILE`"
        ) from error


def _figure(entry: dict[str, Any]) -> Figure:
    values = {key: value for key, value in entry.items() if key not in ("median", "spread")}
    values["samples"] = tuple(float(sample) for sample in values["samples"])
    if not values["samples"]:
        raise ValueError(f"the figure {values.get('name')!r} has no samples")
    return Figure(**values)


@dataclass(frozen=True, slots=True)
class Change:
    """How one figure differs between two runs."""

    figure: Figure
    """The newer one."""
    before: float
    after: float
    noise: float
    """What both of them vary by."""

    @property
    def ratio(self) -> float:
        return self.after / self.before if self.before else 0.0

    @property
    def is_real(self) -> bool:
        """Whether the difference is larger than twice the noise, and than three percent."""
        difference = abs(self.after - self.before)
        return difference > 2 * self.noise and difference > _LEAST_CHANGE * abs(self.before)

    @property
    def is_better(self) -> bool:
        return (self.after > self.before) == self.figure.higher_is_better


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs side by side."""

    changes: tuple[Change, ...]
    warnings: tuple[str, ...]
    """Why the two may not be comparable."""
    missing: tuple[str, ...]
    """Figures of the older run that the newer one has not."""


def compare(before: BenchResult, after: BenchResult) -> Comparison:
    """What changed from `before` to `after`, figure by figure."""
    changes = []
    for figure in after.figures:
        old = before.of(figure.name)
        if old is not None:
            noise = (old.spread**2 + figure.spread**2) ** 0.5
            changes.append(Change(figure, old.median, figure.median, noise))
    names = {figure.name for figure in after.figures}
    missing = tuple(figure.name for figure in before.figures if figure.name not in names)
    return Comparison(tuple(changes), tuple(_differences(before, after)), missing)


def _differences(before: BenchResult, after: BenchResult) -> list[str]:
    found = []
    for what, old, new in (
        ("machine", before.machine.get("description"), after.machine.get("description")),
        ("model", before.model.get("fingerprint"), after.model.get("fingerprint")),
        ("settings", before.settings, after.settings),
    ):
        if old != new:
            found.append(f"the {what} is not the same: {_shown(old)} and {_shown(new)}")
    return found


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {entry}" for key, entry in value.items())
    return str(value)


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least `share` of all samples do not exceed (nearest rank: no interpolation)."""
    ordered = sorted(samples)
    rank = math.ceil(share * len(ordered) - 1e-9)
    return ordered[min(max(rank, 1), len(ordered)) - 1]
