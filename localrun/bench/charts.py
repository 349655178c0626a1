"""Results as text for a terminal: a line a figure, a bar for each, and what changed.

Knows figures; knows no stream. Invariant: only characters that every UTF-8 terminal has, and no escape codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from localrun.bench.figures import BenchResult, Comparison, Figure

_BLOCKS = " ▏▎▍▌▋▊▉█"
_WIDTH = 24


def result_text(result: BenchResult) -> str:
    """All figures by group, each with its spread and a bar relative to the group's largest."""
    lines = [
        f"model    {result.model['name']} ({result.model['quantization']})",
        f"machine  {result.machine['description']}",
    ]
    if result.bandwidth:
        lines.append(f"memory   reads {result.bandwidth / 1e9:.1f} GB/s")
    lines += [f"note     {note}" for note in result.notes]
    for group in dict.fromkeys(figure.group for figure in result.figures):
        figures = [figure for figure in result.figures if figure.group == group]
        lines.append("")
        lines += _group_lines(figures)
    return "\n".join(lines) + "\n"


def _group_lines(figures: Sequence[Figure]) -> list[str]:
    largest = max(figure.median for figure in figures)
    width = max(len(figure.label) for figure in figures)
    values = [quantity(figure.median, figure.unit) for figure in figures]
    spreads = [f"± {quantity(f.spread, f.unit)}" if len(f.samples) > 1 else "" for f in figures]
    value_width, spread_width = max(map(len, values)), max(map(len, spreads))
    lines = []
    for figure, value, spread in zip(figures, values, spreads, strict=True):
        columns = (f"{figure.label:<{width}}", f"{value:>{value_width}}", f"{spread:<{spread_width}}")
        line = "  ".join((*columns, f"{bar(figure.median, largest):<{_WIDTH}}"))
        if figure.roofline_share is not None and figure.bytes_per_token is not None:
            moved = f"{figure.bytes_per_token / 1e6:,.0f} MB a token"
            line = f"{line}  {moved}, {100 * figure.roofline_share:.0f} % of what memory allows"
        lines.append(line.rstrip())
    return lines


def bar(value: float, largest: float, width: int = _WIDTH) -> str:
    """A bar of eighths of a character; empty for nothing."""
    if largest <= 0:
        return ""
    eighths = round(8 * width * max(0.0, min(1.0, value / largest)))
    return "█" * (eighths // 8) + (_BLOCKS[eighths % 8] if eighths % 8 else "")


def quantity(value: float, unit: str) -> str:
    """A value as people read it: milliseconds below a second, three digits that count."""
    if unit == "s":
        return f"{1000 * value:,.3g} ms" if value < 1 else f"{value:,.2f} s"
    if unit == "%":
        return f"{value:.0f} %"
    return f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"


def comparison_text(comparison: Comparison) -> str:
    """What changed beyond the noise, and how much did not."""
    lines = [f"note     {warning}" for warning in comparison.warnings]
    real = [change for change in comparison.changes if change.is_real]
    width = max((len(change.figure.label) for change in real), default=0)
    for change in real:
        unit = change.figure.unit
        verdict = "better" if change.is_better else "worse"
        lines.append(
            f"{change.figure.label:<{width}}  {quantity(change.before, unit)} → {quantity(change.after, unit)}  "
            f"{_percent(change.ratio)}  {verdict}"
        )
    same = len(comparison.changes) - len(real)
    lines.append(f"{_count(len(real))} changed, {_count(same)} stayed within the noise")
    if comparison.missing:
        lines.append(f"not measured this time: {_some(comparison.missing)}")
    return "\n".join(lines) + "\n"


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.0f} %"


def _count(n: int) -> str:
    return f"{n} figure" if n == 1 else f"{n} figures"


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
    return ", ".join(listed[:5]) + more
