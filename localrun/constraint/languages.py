"""From a `ConstraintSpec` to a grammar: which language is compiled by which module.

Knows the four kinds of constraint and nothing about any of them.
"""

from __future__ import annotations

from localrun.constraint.compiled import Grammar
from localrun.constraint.gbnf import compile_gbnf
from localrun.params import ConstraintSpec


def grammar_of(spec: ConstraintSpec) -> Grammar:
    """Compile the constraint for no vocabulary in particular. Raises `ConstraintError`."""
    assert isinstance(spec.source, str)
    return compile_gbnf(spec.source, spec.name)
