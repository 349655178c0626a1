"""The named mixes choose, tensor for tensor, what llama.cpp chooses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType, GGUFValueType

from quantize.errors import RecipeError
from quantize.model import MetadataValue, Model, Tensor
from quantize.recipe import Choice, Recipe, assign, check_matrix, parse_layers, parse_override, prune, substitutions
from quantize.types import MIXES, parse_mix
from tests.quantize.oracle import Spec, chosen_types

Shapes = dict[str, tuple[int, ...]]


def dense(
    n_layer: int, embd: int, ff: int, kv: int, *, tied: bool, fused_qkv: bool = False
) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {"token_embd.weight": (320, embd), "output_norm.weight": (embd,)}
    if not tied:
        found["output.weight"] = (320, embd)
    for i in range(n_layer):
        block = f"blk.{i}."
        found |= {block + "attn_norm.weight": (embd,), block + "attn_output.weight": (embd, embd)}
        if fused_qkv:
            found[block + "attn_qkv.weight"] = (embd + 2 * kv, embd)
        else:
            found |= {block + "attn_q.weight": (embd, embd), block + "attn_q.bias": (embd,)}
            found |= {block + "attn_k.weight": (kv, embd), block + "attn_v.weight": (kv, embd)}
        found |= {block + "ffn_gate.weight": (ff, embd), block + "ffn_up.weight": (ff, embd)}
        found[block + "ffn_down.weight"] = (embd, ff)
    return found


def experts(n_layer: int, n_expert: int, embd: int, ff: int, kv: int) -> Shapes:
    found = {name: shape for name, shape in dense(n_layer, embd, ff, kv, tied=False).items() if "ffn_" not in name}
    for i in range(n_layer):
        block = f"blk.{i}."
        found[block + "ffn_gate_inp.weight"] = (n_expert, embd)
        found |= {block + f"ffn_{part}_exps.weight": (n_expert, ff, embd) for part in ("gate", "up")}
        found[block + "ffn_down_exps.weight"] = (n_expert, embd, ff)
        found |= {block + "ffn_up_shexp.weight": (ff, embd), block + "ffn_down_shexp.weight": (embd, ff)}
    return found


SPECS = {
    "small tied model": Spec("llama", 30, 9, 3, 0, dense(30, 576, 1536, 192, tied=True)),
    "grouped heads": Spec("qwen3", 28, 16, 4, 0, dense(28, 1024, 3072, 512, tied=True)),
    "separate head": Spec("llama", 17, 8, 8, 0, dense(17, 512, 1024, 512, tied=False)),
    "70B": Spec("llama", 80, 64, 8, 0, dense(80, 512, 1024, 256, tied=False)),
    "odd rows": Spec("gemma3", 12, 4, 1, 0, dense(12, 640, 2048, 256, tied=True)),
    "rows of 100": Spec("llama", 6, 4, 4, 0, dense(6, 100, 172, 100, tied=False)),
    "fused attention": Spec("phi3", 16, 8, 8, 0, dense(16, 512, 1024, 512, tied=False, fused_qkv=True)),
    "falcon": Spec("falcon", 32, 8, 1, 0, dense(32, 512, 2048, 64, tied=False, fused_qkv=True)),
    "eight experts": Spec("llama", 16, 8, 2, 8, experts(16, 8, 512, 1024, 128)),
    "many experts": Spec("qwen3moe", 24, 8, 2, 32, experts(24, 32, 512, 768, 128)),
    "wide value heads, few experts": Spec("llama", 9, 8, 8, 4, experts(9, 4, 512, 768, 512)),
}


def model_of(spec: Spec) -> Model:
    def nothing(start: int, stop: int) -> np.ndarray:
        raise AssertionError("a recipe reads no weights")

    def number(value: int) -> MetadataValue:
        return MetadataValue(value, GGUFValueType.UINT32)

    arch = spec.architecture
    metadata = {
        f"{arch}.block_count": number(spec.n_layer),
        f"{arch}.attention.head_count": number(spec.n_head),
        f"{arch}.attention.head_count_kv": number(spec.n_head_kv),
        f"{arch}.expert_count": number(spec.n_expert),
    }
    tensors = tuple(Tensor(name, shape, GGMLQuantizationType.F32, nothing) for name, shape in spec.tensors.items())
    return Model(arch, metadata, tensors, source_bytes=0)


@pytest.mark.parametrize("name", SPECS)
def test_every_mix_chooses_the_types_that_llama_cpp_chooses(name: str) -> None:
    spec = SPECS[name]
    theirs = chosen_types(spec, [int(mix.file_type) for mix in MIXES.values()])
    for mix in MIXES.values():
        ours = types_of(assign(model_of(spec), Recipe(mix), has_matrix=False))
        expected = {tensor: GGMLQuantizationType(kind).name for tensor, kind in theirs[int(mix.file_type)].items()}
        assert {tensor: ours[tensor] for tensor in expected} == expected, mix.name
        kept = set(ours) - set(expected)
        assert kept == {tensor for tensor in ours if len(spec.tensors[tensor]) < 2 or "ffn_gate_inp" in tensor}


def types_of(choices: list[Choice]) -> dict[str, str]:
    return {choice.tensor.name: choice.type.name for choice in choices}


def small_model() -> Model:
    return model_of(SPECS["small tied model"])


def test_substitutions_are_summed_up_in_one_sentence() -> None:
    summary = substitutions(assign(small_model(), Recipe(parse_mix("q4_k_m")), has_matrix=False))
    assert summary is not None
    assert summary.count == 181
    assert summary.total == 272
    assert ("q6_k", "q8_0", 15) in summary.kinds
    assert summary.bits > summary.bits_wanted
    assert "181 of 272 tensors" in str(summary)


def test_a_model_whose_rows_fit_has_no_substitutions() -> None:
    assert (
        substitutions(assign(model_of(SPECS["separate head"]), Recipe(parse_mix("q4_k_m")), has_matrix=False)) is None
    )


def test_overrides_win_over_the_mix_and_the_first_match_wins() -> None:
    overrides = (parse_override(r"blk\.0\.ffn_down=q8_0"), parse_override("ffn_down=iq4_nl"))
    found = types_of(assign(small_model(), Recipe(parse_mix("q4_k_m"), overrides), has_matrix=False))
    assert found["blk.0.ffn_down.weight"] == "Q8_0"
    assert found["blk.1.ffn_down.weight"] == "IQ4_NL"


def test_overrides_keep_the_case_of_their_pattern() -> None:
    override = parse_override(r"^blk\.\d+\.ffn_\Dp\.=q8_0")
    found = types_of(assign(small_model(), Recipe(parse_mix("q4_0"), (override,)), has_matrix=False))
    assert found["blk.11.ffn_up.weight"] == "Q8_0"
    assert found["blk.11.ffn_down.weight"] == "Q4_0"


def test_an_override_that_matches_nothing_is_an_error() -> None:
    with pytest.raises(RecipeError, match="FFN_DOWN=q8_0' matches no tensor"):
        assign(small_model(), Recipe(parse_mix("q4_0"), (parse_override("FFN_DOWN=q8_0"),)), has_matrix=False)


def test_a_forced_type_that_does_not_fit_is_an_error_that_says_what_would() -> None:
    with pytest.raises(RecipeError, match="rows of 576 values") as caught:
        assign(small_model(), Recipe(parse_mix("q4_0"), (parse_override("attn_k=q6_k"),)), has_matrix=False)
    assert caught.value.hint is not None
    assert "q8_0" in caught.value.hint


def test_pure_takes_the_base_type_everywhere() -> None:
    found = types_of(assign(model_of(SPECS["separate head"]), Recipe(parse_mix("q4_k_m"), pure=True), has_matrix=False))
    assert {found[name] for name in found if name.endswith("weight") and "norm" not in name} == {"Q4_K"}


def test_coarse_types_are_refused_without_an_importance_matrix() -> None:
    model, recipe = model_of(SPECS["separate head"]), Recipe(parse_mix("iq2_xs"))
    with pytest.raises(RecipeError, match="needs an importance matrix"):
        check_matrix(assign(model, recipe, has_matrix=False), recipe, None)
    choices = assign(model, recipe, has_matrix=True)
    names = frozenset(choice.tensor.name for choice in choices)
    check_matrix(choices, recipe, names)
    with pytest.raises(RecipeError, match=r"no data for blk\.9\.ffn_up"):
        check_matrix(choices, recipe, names - {"blk.9.ffn_up.weight"})


@pytest.mark.parametrize("text", ["q8_0", "=q8_0", "(=q8_0", "attn_v=q9_9", "attn_v=q8_k"])
def test_an_override_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(RecipeError):
        parse_override(text)


@pytest.mark.parametrize(("text", "hint"), [("q4_km", "q4_k_m"), ("Q9", None), ("", None)])
def test_an_unknown_mix_is_refused_with_what_was_meant(text: str, hint: str | None) -> None:
    with pytest.raises(RecipeError) as caught:
        parse_mix(text)
    assert hint is None or caught.value.hint == f"did you mean {hint}?"


def test_pruning_renumbers_tensors_counts_and_arrays_of_layers() -> None:
    model = small_model()
    per_layer = MetadataValue(list(range(30)), GGUFValueType.ARRAY, GGUFValueType.UINT32)
    model = replace(model, metadata=model.metadata | {"llama.attention.sliding_window_pattern": per_layer})
    pruned = prune(model, parse_layers("2-3,29"))
    names = {tensor.name for tensor in pruned.tensors}
    assert "blk.26.ffn_down.weight" in names
    assert "blk.27.ffn_down.weight" not in names
    assert pruned.metadata["llama.block_count"].value == 27
    assert pruned.metadata["llama.attention.sliding_window_pattern"].value == [0, 1, *range(4, 29)]


@pytest.mark.parametrize("text", ["30", "0-29", "x", "5-3", "1,,2", "-1"])
def test_layers_that_cannot_be_pruned_are_refused(text: str) -> None:
    with pytest.raises(RecipeError):
        prune(small_model(), parse_layers(text))
