"""A model and a recipe → the type of every tensor, with the reason.

Knows the mixes, the user's overrides and what rows allow; no offsets and no weights. Invariant: every chosen type fits
its rows, and nothing is chosen that libggml cannot compute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from quantize.errors import RecipeError
from quantize.model import Model, Tensor
from quantize.recipe.facts import Facts, Part, is_quantizable, layer_of, part_of
from quantize.recipe.fallback import fallback, fits
from quantize.recipe.mixes import MixRules
from quantize.recipe.overrides import Override
from quantize.types import FLOAT_TYPES, NEED_MATRIX, NamedMix, bits_per_weight

T = GGMLQuantizationType


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the user asked for."""

    mix: NamedMix | None
    """None copies every tensor in the type it has."""
    overrides: tuple[Override, ...] = ()
    pure: bool = False
    """The mix's base type everywhere, without the rules for single tensors."""

    @property
    def name(self) -> str:
        if self.mix is None:
            return "copy"
        return self.mix.name + ("-pure" if self.pure else "")


@dataclass(frozen=True, slots=True)
class Choice:
    """One tensor's type."""

    tensor: Tensor
    type: GGMLQuantizationType
    reason: str
    wanted: GGMLQuantizationType
    """What the recipe would have taken if the rows allowed it."""

    @property
    def is_substituted(self) -> bool:
        return bool(self.type != self.wanted)


@dataclass(frozen=True, slots=True)
class Substitutions:
    """All tensors whose rows did not allow what the recipe wanted."""

    count: int
    total: int
    share: float
    """Of the parameters, 0 to 1."""
    bits_wanted: float
    """Bits per weight of the whole model, had the rows allowed it."""
    bits: float
    kinds: tuple[tuple[str, str, int], ...]
    """(wanted, written, number of tensors)"""

    def __str__(self) -> str:
        kinds = ", ".join(f"{wanted}→{written} ({n})" for wanted, written, n in self.kinds)
        return (
            f"{self.count} of {self.total} tensors ({self.share:.1%} of the parameters) have rows that their type does "
            f"not divide: {kinds}; {self.bits_wanted:.2f} → {self.bits:.2f} bits per weight"
        )


def assign(model: Model, recipe: Recipe, *, has_matrix: bool) -> list[Choice]:
    """A choice for every tensor, in the order of the model.

    Args:
        has_matrix: whether there is, or will be, an importance matrix: some rules are bolder with one.

    Raises:
        RecipeError: a forced type does not fit its tensor, or an override matches nothing.
    """
    facts = Facts.of(model)
    quantizable = [tensor for tensor in model.tensors if is_quantizable(tensor, model.architecture)]
    _check_overrides(recipe, quantizable)
    wanted = _wanted(quantizable, recipe, facts, has_matrix=has_matrix)
    return [_choice(tensor, recipe, wanted) for tensor in model.tensors]


def check_matrix(choices: Sequence[Choice], recipe: Recipe, names: frozenset[str] | None) -> None:
    """Refuse types that come out as noise without an importance matrix.

    Args:
        names: tensors that the matrix has data for; None without a matrix. For a matrix that is yet to be collected,
            leave the call out.

    Raises:
        RecipeError: the first such tensor.
    """
    for choice in choices:
        if choice.type != choice.tensor.source_type and _needs_matrix(choice, recipe):
            name, kind = choice.tensor.name, choice.type.name.lower()
            if names is None:
                raise RecipeError(
                    f"{kind} for {name} needs an importance matrix", hint="use --imatrix auto or --imatrix FILE"
                )
            if name not in names:
                raise RecipeError(
                    f"the importance matrix has no data for {name}, which {kind} needs",
                    hint="collect the matrix from this very model, with more text",
                )


def substitutions(choices: Sequence[Choice]) -> Substitutions | None:
    """The summary of all substitutions, None where there are none."""
    changed = [choice for choice in choices if choice.is_substituted]
    if not changed:
        return None
    n_values = sum(choice.tensor.n_values for choice in choices)
    kinds = Counter((choice.wanted.name.lower(), choice.type.name.lower()) for choice in changed)
    return Substitutions(
        count=len(changed),
        total=len(choices),
        share=sum(choice.tensor.n_values for choice in changed) / n_values,
        bits_wanted=sum(bits_per_weight(choice.wanted) * choice.tensor.n_values for choice in choices) / n_values,
        bits=sum(bits_per_weight(choice.type) * choice.tensor.n_values for choice in choices) / n_values,
        kinds=tuple((wanted, written, n) for (wanted, written), n in sorted(kinds.items())),
    )


def _check_overrides(recipe: Recipe, quantizable: list[Tensor]) -> None:
    for override in recipe.overrides:
        if not any(override.matches(tensor.name) for tensor in quantizable):
            raise RecipeError(
                f"'{override.text}' matches no tensor that can be quantized",
                hint="--dry-run lists the names; patterns are case-sensitive",
            )


def _wanted(
    tensors: list[Tensor], recipe: Recipe, facts: Facts, *, has_matrix: bool
) -> dict[str, tuple[GGMLQuantizationType, str]]:
    """Name → (type, reason), before row lengths are looked at."""
    if recipe.mix is None:
        return {}
    rules = MixRules(recipe.mix, facts, sum(part_of(tensor.name).is_value_like for tensor in tensors), has_matrix)
    found: dict[str, tuple[GGMLQuantizationType, str]] = {}
    for tensor in sorted(tensors, key=_engine_order):
        forced = next((override for override in recipe.overrides if override.matches(tensor.name)), None)
        base = recipe.mix.base
        if forced is not None:
            # llama.cpp's rules do not count a tensor that was forced, so neither do these.
            found[tensor.name] = (forced.type, f"forced by {forced.text}")
        elif recipe.pure or not recipe.mix.quantizes:
            found[tensor.name] = (base, recipe.name)
        else:
            kind = rules.choose(tensor)
            part = part_of(tensor.name)
            what = "output head" if rules.is_head(part) else part.value
            reason = recipe.name if kind == base else f"{recipe.name}: {what}"
            if rules.is_head(part) and not fits(rules.wanted_head(), tensor.n_cols):
                # The mix takes q8_0 here by itself; it is a substitution all the same.
                kind = rules.wanted_head()
                reason = f"{recipe.name}: {what}"
            found[tensor.name] = (kind, reason)
    return found


def _engine_order(tensor: Tensor) -> tuple[int, str]:
    """By layer, then by name: the order in which llama.cpp walks a model."""
    layer = layer_of(tensor.name)
    return (-1 if layer is None else layer, tensor.name)


def _choice(tensor: Tensor, recipe: Recipe, wanted: dict[str, tuple[GGMLQuantizationType, str]]) -> Choice:
    if tensor.keep_type is not None:
        return Choice(tensor, tensor.keep_type, "kept", tensor.keep_type)
    if tensor.name not in wanted:
        kind = _kept_type(tensor, recipe)
        return Choice(tensor, kind, "copied" if recipe.mix is None else "kept", kind)
    kind, reason = wanted[tensor.name]
    if fits(kind, tensor.n_cols):
        return Choice(tensor, kind, reason, kind)
    if reason.startswith("forced"):
        block = GGML_QUANT_SIZES[kind][0]
        raise RecipeError(
            f"{tensor.name} has rows of {tensor.n_cols} values, no multiple of {kind.name.lower()} blocks of {block}",
            hint=f"force {fallback(kind, tensor.n_cols).name.lower()} or leave the tensor to the recipe",
        )
    is_head = reason.endswith("output head")
    written = fallback(T.Q8_0 if is_head else kind, tensor.n_cols)
    return Choice(tensor, written, f"{reason}; rows of {tensor.n_cols} do not divide into {kind.name.lower()}", kind)


def _kept_type(tensor: Tensor, recipe: Recipe) -> GGMLQuantizationType:
    """Vectors and norms are F32 in every GGUF file; other tensors that are not quantized stay as they are."""
    is_vector = tensor.n_rows == 1 or tensor.name.endswith("_norm.weight")
    if recipe.mix is not None and is_vector and tensor.source_type in FLOAT_TYPES:
        return T.F32
    return tensor.source_type


def _needs_matrix(choice: Choice, recipe: Recipe) -> bool:
    if part_of(choice.tensor.name) in {Part.OUTPUT, Part.TOKEN_EMBEDDING}:
        return False
    coarse_mix = recipe.mix is not None and recipe.mix.name == "q2_k_s"
    return choice.type in NEED_MATRIX or (choice.type == T.Q2_K and coarse_mix)
