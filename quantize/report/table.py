"""The quality report and the plan for a terminal, as rich tables.

Knows layout and words, no measuring.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from quantize.plan import Plan
from quantize.report.quality import QualityReport
from quantize.verify.scores import Statistics


def quality_table(report: QualityReport) -> RenderableType:
    """Figures on each slice, then the causes of changed answers."""
    figures = Table(title=f"{report.model}: against {report.base}", title_justify="left")
    figures.add_column("text")
    for name in ("perplexity", "base", "KL divergence", "99.9 %", "same top token", "RMS Δp"):
        figures.add_column(name, justify="right")
    rows = [*((s.name, s.statistics) for s in report.evaluation.slices), ("all", report.evaluation.overall)]
    for name, statistics in rows:
        figures.add_row(name, *_cells(statistics), end_section=name == rows[-2][0])
    causes = Table(title="Tokens that would be drawn differently, each cause alone", title_justify="left")
    causes.add_column("cause")
    causes.add_column("share", justify="right")
    for cause in report.evaluation.causes:
        causes.add_row(cause.name, f"{cause.drawn_differently:.2%}")
    return Group(figures, causes)


def _cells(found: Statistics) -> tuple[str, ...]:
    return (
        f"{found.perplexity:.4f} ± {found.perplexity_error:.4f}",
        f"{found.perplexity_base:.4f}",
        f"{found.divergence:.5f} ± {found.divergence_error:.5f}",
        f"{found.divergence_999:.4f}",
        f"{found.same_top:.2%} ± {found.same_top_error:.2%}",
        f"{found.rms_probability_change:.2%}",
    )


def plan_table(plan: Plan) -> RenderableType:
    """Every tensor with its type, size and reason, and the sum."""
    table = Table(title=f"{plan.files[0].path}: {plan.recipe}", title_justify="left")
    table.add_column("tensor")
    table.add_column("shape", justify="right")
    for name in ("from", "to"):
        table.add_column(name)
    table.add_column("MB", justify="right")
    table.add_column("reason")
    for planned in plan.tensors:
        choice = planned.choice
        table.add_row(
            choice.tensor.name,
            " × ".join(map(str, choice.tensor.shape)),
            choice.tensor.source_type.name.lower(),
            Text(choice.type.name.lower(), style="yellow" if choice.is_substituted else ""),
            f"{planned.n_bytes / 1e6:.2f}",
            choice.reason,
        )
    size = f"{plan.size / 1e6:,.1f} MB in {len(plan.files)} file{'s' * (len(plan.files) > 1)}"
    return Group(table, Text(f"{size}, {plan.bits_per_weight:.2f} bits per weight, {plan.n_parameters:,} parameters"))
