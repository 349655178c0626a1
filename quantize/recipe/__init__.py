"""Which type each tensor is written in, and why."""

from quantize.recipe.assign import Choice, Recipe, Substitutions, assign, check_matrix, substitutions
from quantize.recipe.overrides import Override, parse_override
from quantize.recipe.prune import parse_layers, prune

__all__ = [
    "Choice",
    "Override",
    "Recipe",
    "Substitutions",
    "assign",
    "check_matrix",
    "parse_layers",
    "parse_override",
    "prune",
    "substitutions",
]
