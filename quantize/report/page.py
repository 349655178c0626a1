"""The quality report as one HTML page that needs nothing else: figures, plots as SVG, the table of tensors.

Knows layout only. Invariant: every text from outside is escaped; nothing is loaded from anywhere.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from quantize.recipe.facts import layer_of, part_of
from quantize.report.quality import QualityReport
from quantize.verify.scores import Statistics

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse;margin:.5rem 0}td,th{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:right}
td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}h2{margin-top:2rem}
.note{color:#666}svg text{font:11px system-ui,sans-serif;fill:#444}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#151515}td,th{border-color:#444}svg text{fill:#bbb}}
"""

_COLOURS = (
    "#3366cc",
    "#dc3912",
    "#ff9900",
    "#109618",
    "#990099",
    "#0099c6",
    "#dd4477",
    "#66aa00",
    "#b82e2e",
    "#316395",
)
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 760, 320, 70, 45


def render_page(report: QualityReport) -> str:
    """The whole page."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>{_text(report.model)}: quality</title><style>{_STYLE}</style>",
        f"<h1>{_text(report.model)}</h1>",
        f"<p>{_text(report.recipe)}, {report.bytes / 1e6:,.1f} MB, {report.bits_per_weight:.2f} bits per weight; "
        f"compared with {_text(report.base)} ({report.base_bytes / 1e6:,.1f} MB) by {_text(report.engine)}.</p>",
        "<h2>Figures</h2>",
        _figures(report),
        "<p class=note>KL divergence in nats; positions 256 to 510 of chunks of 512 tokens, as llama-perplexity counts "
        "them. ± is one standard error.</p>",
        "<h2>Why answers change</h2>",
        _causes(report),
        "<h2>Size against divergence</h2>",
        _sizes(report),
        "<h2>Error of each layer</h2>",
        _layers(report),
        "<h2>Tensors</h2>",
        _tensors(report),
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def _text(value: object) -> str:
    return html.escape(str(value))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["<table><tr>" + "".join(f"<th>{_text(cell)}</th>" for cell in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    return "\n".join(lines) + "</table>"


def _figures(report: QualityReport) -> str:
    head = ("text", "perplexity", "base", "ln ratio", "KL divergence", "median", "99 %", "99.9 %", "same top", "RMS Δp")
    rows = [(s.name, s.statistics) for s in report.evaluation.slices] + [("all", report.evaluation.overall)]
    return _table(head, [(name, *_cells(statistics)) for name, statistics in rows])


def _cells(s: Statistics) -> tuple[str, ...]:
    return (
        f"{s.perplexity:.4f} ± {s.perplexity_error:.4f}",
        f"{s.perplexity_base:.4f}",
        f"{s.log_ratio:.5f} ± {s.log_ratio_error:.5f}",
        f"{s.divergence:.5f} ± {s.divergence_error:.5f}",
        f"{s.divergence_median:.5f}",
        f"{s.divergence_99:.4f}",
        f"{s.divergence_999:.4f}",
        f"{s.same_top:.2%} ± {s.same_top_error:.2%}",
        f"{s.rms_probability_change:.2%}",
    )


def _causes(report: QualityReport) -> str:
    rows = [(cause.name, f"{cause.drawn_differently:.2%}") for cause in report.evaluation.causes]
    note = "<p class=note>Each cause alone, against the base with an F16 cache and plain sampling.</p>"
    return _table(("cause", "tokens drawn differently"), rows) + note


def _sizes(report: QualityReport) -> str:
    """Files of this model in the same folder: how much divergence each size costs."""
    points = [(s.bytes / 1e6, s.divergence, s.recipe) for s in report.siblings]
    points.append((report.bytes / 1e6, report.evaluation.overall.divergence, report.recipe))
    points = [(x, max(y, 1e-7), name) for x, y, name in points]
    low = math.floor(math.log10(min(y for _, y, _ in points)))
    high = max(math.ceil(math.log10(max(y for _, y, _ in points))), low + 1)
    x_max = max(x for x, _, _ in points) * 1.15
    body = [_axes("size, MB", "KL divergence")]
    for exponent in range(low, high + 1):
        y = _y((exponent - low) / (high - low))
        body.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">1e{exponent}</text>')
    for tick in range(5):
        x = _x(tick / 4)
        body.append(
            f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{x_max * tick / 4:.0f}</text>'
        )
    for index, (size, divergence, name) in enumerate(points):
        x, y = _x(size / x_max), _y((math.log10(divergence) - low) / (high - low))
        colour = _COLOURS[1 if index == len(points) - 1 else 0]
        body.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>')
        body.append(f'<text x="{x + 8:.1f}" y="{y + 4:.1f}">{_text(name)} ({divergence:.4f})</text>')
    note = "" if report.siblings else "<p class=note>Other types of this model in the same folder appear here.</p>"
    return _svg(body) + note


def _layers(report: QualityReport) -> str:
    """Relative error by layer, one line for each part of the layers."""
    series: dict[str, dict[int, float]] = {}
    for name, error in report.errors.items():
        layer = layer_of(name)
        if layer is not None:
            series.setdefault(part_of(name).value, {})[layer] = error
    if not series:
        return "<p class=note>No layer was quantized.</p>"
    last = max(max(points) for points in series.values())
    top = max(max(points.values()) for points in series.values()) * 1.1 or 1.0
    body = [_axes("layer", "relative squared error")]
    for tick in range(5):
        y = _y(tick / 4)
        body.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{top * tick / 4:.2g}</text>')
    step = max(1, last // 8)
    for layer in range(0, last + 1, step):
        x = _x(layer / max(last, 1) * 0.8)
        body.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{layer}</text>')
    for index, (part, points) in enumerate(sorted(series.items())):
        colour = _COLOURS[index % len(_COLOURS)]
        line = " ".join(f"{_x(n / max(last, 1) * 0.8):.1f},{_y(v / top):.1f}" for n, v in sorted(points.items()))
        body.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        body.append(f'<text x="{_x(0.82):.1f}" y="{20 + 16 * index}" style="fill:{colour}">{_text(part)}</text>')
    return _svg(body)


def _tensors(report: QualityReport) -> str:
    rows = [(name, report.types[name], f"{error:.3e}") for name, error in report.errors.items()]
    return "<details><summary>All tensors</summary>" + _table(("tensor", "type", "relative error"), rows) + "</details>"


def _x(share: float) -> float:
    return _LEFT + share * (_WIDTH - _LEFT - 20)


def _y(share: float) -> float:
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - 15)


def _axes(x_label: str, y_label: str) -> str:
    corner = f"{_LEFT},{_HEIGHT - _BOTTOM}"
    return (
        f'<polyline points="{_LEFT},10 {corner} {_WIDTH - 10},{_HEIGHT - _BOTTOM}" fill="none" stroke="#888"/>'
        f'<text x="{(_WIDTH + _LEFT) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">{_text(x_label)}</text>'
        f'<text x="14" y="{(_HEIGHT - _BOTTOM) / 2}" text-anchor="middle" '
        f'transform="rotate(-90 14 {(_HEIGHT - _BOTTOM) / 2})">{_text(y_label)}</text>'
    )


def _svg(body: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">' + "".join(body) + "</svg>"
