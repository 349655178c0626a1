"""Results as one HTML page: plots as inline SVG, no script, nothing loaded from anywhere.

Knows figures and SVG. Invariant: every text of the result is escaped, because a model's name is foreign input.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from localrun.bench.charts import quantity
from localrun.bench.figures import BenchResult, Comparison, Figure

_W, _H, _LEFT, _BOTTOM, _TOP = 460, 220, 70, 34, 14
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#1b1b1b;background:#fff}
h1{font-size:1.4em}h2{font-size:1.05em;margin:1.6em 0 .3em}table{border-collapse:collapse}
td,th{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:right}td:first-child,th:first-child{text-align:left}
.plots{display:flex;flex-wrap:wrap;gap:1.2em}figure{margin:0}figcaption{font-size:.9em}
.note{color:#8a4b00}.better{color:#1a6b2f}.worse{color:#a02222}
svg text{font:11px system-ui,sans-serif;fill:#444}
@media(prefers-color-scheme:dark){body{background:#161616;color:#e6e6e6}td,th{border-color:#333}svg text{fill:#bbb}}
"""
_AXES = {
    "ttft": "prompt tokens",
    "ttft cached": "prompt tokens",
    "prefill": "prompt tokens",
    "tpot": "tokens in the context",
    "decode": "tokens in the context",
    "throughput": "requests at a time",
}


def result_page(result: BenchResult, comparison: Comparison | None = None) -> str:
    """A complete page."""
    name = escape(str(result.model["name"]))
    parts = [
        "<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'>",
        f"<title>localrun bench: {name}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{name}</h1>",
        _facts(result),
        *(f"<p class='note'>{escape(note)}</p>" for note in result.notes),
        "<div class='plots'>",
        *(_plot(group, figures) for group, figures in _groups(result) if len(figures) > 1),
        "</div>",
    ]
    if comparison is not None:
        parts.append(_changes(comparison))
    parts += ["<h2>All figures</h2>", _table(result.figures), "</body></html>"]
    return "\n".join(parts) + "\n"


def _groups(result: BenchResult) -> list[tuple[str, list[Figure]]]:
    names = dict.fromkeys(figure.group for figure in result.figures)
    return [(name, [figure for figure in result.figures if figure.group == name]) for name in names]


def _facts(result: BenchResult) -> str:
    rows = {
        "quantization": result.model["quantization"],
        "machine": result.machine["description"],
        "memory": f"{result.bandwidth / 1e9:.1f} GB/s read" if result.bandwidth else "not measured",
        "suite": result.suite,
        "settings": ", ".join(f"{key} {value}" for key, value in result.settings.items() if value is not None),
        "measured": result.started,
    }
    cells = "".join(f"<tr><td>{escape(key)}</td><td>{escape(str(value))}</td></tr>" for key, value in rows.items())
    return f"<table>{cells}</table>"


def _plot(group: str, figures: Sequence[Figure]) -> str:
    """A line through the medians, a bar from the lowest to the highest sample at each."""
    xs = [float(figure.x if figure.x is not None else i) for i, figure in enumerate(figures)]
    top = max(figure.high for figure in figures) * 1.08 or 1.0
    left, right = min(xs), max(xs)
    span = (right - left) or 1.0

    def px(x: float) -> float:
        return _LEFT + (x - left) / span * (_W - _LEFT - 16)

    def py(y: float) -> float:
        return _H - _BOTTOM - y / top * (_H - _BOTTOM - _TOP)

    points = " ".join(f"{px(x):.1f},{py(figure.median):.1f}" for x, figure in zip(xs, figures, strict=True))
    unit = figures[0].unit
    marks = []
    for x, figure in zip(xs, figures, strict=True):
        at = f"{px(x):.1f}"
        marks.append(
            f"<line x1='{at}' x2='{at}' y1='{py(figure.low):.1f}' y2='{py(figure.high):.1f}' stroke='#3b6fb5'/>"
            f"<circle cx='{at}' cy='{py(figure.median):.1f}' r='3.5' fill='#3b6fb5'>"
            f"<title>{escape(figure.label)}: {escape(quantity(figure.median, unit))}</title></circle>"
            f"<text x='{at}' y='{_H - _BOTTOM + 15}' text-anchor='middle'>{x:g}</text>"
        )
    for step in range(5):
        value = top * step / 4
        marks.append(
            f"<line x1='{_LEFT}' x2='{_W - 16}' y1='{py(value):.1f}' y2='{py(value):.1f}' stroke='#8884' />"
            f"<text x='{_LEFT - 6}' y='{py(value) + 4:.1f}' text-anchor='end'>{escape(_tick(value, unit))}</text>"
        )
    axis = escape(_AXES.get(group, "requests a second"))
    marks.append(f"<text x='{(_LEFT + _W) / 2:.0f}' y='{_H - 3}' text-anchor='middle'>{axis}</text>")
    title = escape(group.upper() if group in ("ttft", "tpot") else group)
    return (
        f"<figure><svg width='{_W}' height='{_H}' viewBox='0 0 {_W} {_H}' role='img' aria-label='{title}'>"
        f"<polyline points='{points}' fill='none' stroke='#3b6fb5' stroke-width='1.5'/>{''.join(marks)}</svg>"
        f"<figcaption>{title}{'' if unit == 's' else f', {escape(unit)}'}</figcaption></figure>"
    )


def _tick(value: float, unit: str) -> str:
    """A label of the axis: times with their unit, other figures without it, as it stands below the plot."""
    return quantity(value, unit) if unit == "s" and value else f"{value:,.3g}"


def _changes(comparison: Comparison) -> str:
    rows = []
    for change in comparison.changes:
        if change.is_real:
            verdict = "better" if change.is_better else "worse"
            unit = change.figure.unit
            rows.append(
                f"<tr><td>{escape(change.figure.label)}</td><td>{escape(quantity(change.before, unit))}</td>"
                f"<td>{escape(quantity(change.after, unit))}</td>"
                f"<td class='{verdict}'>{100 * (change.ratio - 1):+.0f} %</td></tr>"
            )
    warnings = "".join(f"<p class='note'>{escape(text)}</p>" for text in comparison.warnings)
    head = "<tr><th>figure</th><th>before</th><th>after</th><th></th></tr>"
    body = f"<table>{head}{''.join(rows)}</table>" if rows else "<p>Nothing changed beyond the noise.</p>"
    return f"<h2>What changed</h2>{warnings}{body}"


def _table(figures: Sequence[Figure]) -> str:
    head = (
        "<tr><th>figure</th><th>median</th><th>spread</th><th>lowest</th><th>highest</th><th>of the roofline</th></tr>"
    )
    rows = []
    for figure in figures:
        share = f"{100 * figure.roofline_share:.0f} %" if figure.roofline_share is not None else ""
        values = (quantity(v, figure.unit) for v in (figure.median, figure.spread, figure.low, figure.high))
        cells = "".join(f"<td>{escape(value)}</td>" for value in values)
        rows.append(f"<tr><td>{escape(figure.label)}</td>{cells}<td>{share}</td></tr>")
    return f"<table>{head}{''.join(rows)}</table>"
