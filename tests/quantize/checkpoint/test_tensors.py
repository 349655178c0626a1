"""Every tensor of a checkpoint is used, or left out on purpose, or named in an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType

from quantize.errors import SourceError, UnsupportedError
from quantize.source import open_source
from tests.quantize.checkpoint import tiny
from tests.quantize.checkpoint.conftest import Folder, make_folder


def test_a_missing_head_is_named_when_it_is_not_tied(folder: Folder) -> None:
    folder.store([w for w in folder.weights if w[0] != "lm_head.weight"])
    with pytest.raises(SourceError, match=r"lm_head\.weight") as caught:
        open_source(folder.path)
    assert caught.value.hint == "config.json says the output head is not tied to the embedding."


@pytest.mark.parametrize("stored", [True, False])
def test_a_tied_head_is_left_out_whether_it_is_stored_or_not(folder: Folder, stored: bool) -> None:
    folder.edit("config.json", lambda config: config.update(tie_word_embeddings=True))
    if not stored:
        folder.store([w for w in folder.weights if w[0] != "lm_head.weight"])
    model = open_source(folder.path)
    assert model.tied_output
    assert "output.weight" not in {t.name for t in model.tensors}


def test_an_untied_head_is_written(folder: Folder) -> None:
    model = open_source(folder.path)
    assert not model.tied_output
    assert "output.weight" in {t.name for t in model.tensors}


def test_tensors_that_do_not_belong_to_the_architecture_are_named(folder: Folder) -> None:
    folder.store([*folder.weights, ("model.layers.0.self_attn.extra.weight", "BF16", [4, 4])])
    with pytest.raises(UnsupportedError, match=r"model\.layers\.0\.self_attn\.extra\.weight"):
        open_source(folder.path)


def test_layers_beyond_the_configured_number_are_named(folder: Folder) -> None:
    folder.edit("config.json", lambda config: config.update(num_hidden_layers=1))
    with pytest.raises(UnsupportedError, match=r"model\.layers\.1\."):
        open_source(folder.path)


def test_missing_layers_are_named(folder: Folder) -> None:
    folder.edit("config.json", lambda config: config.update(num_hidden_layers=3))
    with pytest.raises(SourceError, match=r"model\.layers\.2\."):
        open_source(folder.path)


def test_an_optional_tensor_must_be_in_every_layer_or_in_none(folder: Folder) -> None:
    folder.store([*folder.weights, ("model.layers.0.self_attn.q_proj.bias", "BF16", [64])])
    with pytest.raises(SourceError, match=r"model\.layers\.1\.self_attn\.q_proj\.bias"):
        open_source(folder.path)


def test_a_shape_that_contradicts_the_configuration_is_named_with_both(folder: Folder) -> None:
    folder.edit("config.json", lambda config: config.update(intermediate_size=100))
    with pytest.raises(SourceError, match=r"\(96, 64\).*\(100, 64\)|\(64, 96\).*\(64, 100\)"):
        open_source(folder.path)


def test_embeddings_of_added_tokens_that_the_configuration_forgot_are_an_error(folder: Folder) -> None:
    folder.edit("config.json", lambda config: config.update(vocab_size=550))
    with pytest.raises(SourceError, match=r"embed_tokens\.weight.*560, 64.*550, 64|lm_head\.weight.*560, 64.*550, 64"):
        open_source(folder.path)


def test_names_without_the_model_prefix_are_found(folder: Folder) -> None:
    bare = [(n.removeprefix("model."), d, s) for n, d, s in folder.weights if n != "lm_head.weight"]
    folder.edit("config.json", lambda config: config.update(architectures=["LlamaModel"], tie_word_embeddings=True))
    folder.store(bare)
    assert len(open_source(folder.path).tensors) == len(bare)


def test_buffers_of_old_checkpoints_are_left_out(folder: Folder) -> None:
    folder.store([*folder.weights, ("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", [8])])
    assert len(open_source(folder.path).tensors) == len(folder.weights)


def test_norms_stay_f32_and_matrices_may_be_rounded(folder: Folder) -> None:
    kept = {t.name: t.keep_type for t in open_source(folder.path).tensors}
    assert kept["blk.0.attn_norm.weight"] == kept["output_norm.weight"] == GGMLQuantizationType.F32
    assert kept["blk.0.attn_q.weight"] is None
    assert kept["token_embd.weight"] is None


def _stored(name: str, shape: tuple[int, ...], around: float) -> Any:
    bits = np.frombuffer(tiny.encode(name, "BF16", shape, around), np.uint16).astype(np.uint32) << 16
    return bits.view(np.float32).reshape(shape)


def test_gemma_norms_are_what_is_stored_plus_one(tmp_path: Path) -> None:
    model = open_source(make_folder(tmp_path / "gemma", "gemma3").path)
    by_name = {t.name: t for t in model.tensors}
    for theirs, ours in (
        ("model.norm.weight", "output_norm.weight"),
        ("model.layers.0.self_attn.q_norm.weight", "blk.0.attn_q_norm.weight"),
        ("model.layers.1.post_feedforward_layernorm.weight", "blk.1.post_ffw_norm.weight"),
    ):
        tensor = by_name[ours]
        np.testing.assert_array_equal(tensor.read(0, 1)[0], _stored(theirs, tensor.shape, 0.0) + np.float32(1))


def test_llama_norms_are_what_is_stored(folder: Folder) -> None:
    tensor = next(t for t in open_source(folder.path).tensors if t.name == "output_norm.weight")
    np.testing.assert_array_equal(tensor.read(0, 1)[0], _stored("model.norm.weight", tensor.shape, 1.0))


@pytest.mark.parametrize(
    ("name", "change", "word"),
    [
        ("llama2", {"hidden_act": "relu"}, "hidden_act = 'relu'"),
        ("llama2", {"num_key_value_heads": 3}, "no multiple of 3"),
        ("llama2", {"hidden_size": "64"}, "hidden_size = '64'"),
        ("llama2", {"num_attention_heads": 0}, "num_attention_heads = 0"),
        ("llama2", {"vocab_size": None}, "vocab_size"),
        ("llama2", {"tie_word_embeddings": "no"}, "tie_word_embeddings = 'no'"),
        ("llama2", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "'dynamic'"),
        ("llama2", {"rope_parameters": {"rope_type": "linear"}}, "without 'factor'"),
        ("llama2", {"rope_parameters": 5}, "bad rope setting"),
        ("qwen3", {"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "'llama3' is not supported for qwen3"),
        ("llama2", {"rope_parameters": {"rope_type": "longrope"}}, "'longrope' is not supported for llama"),
        ("smollm3", {"rope_scaling": {"type": "llama3"}, "rope_parameters": None}, "'llama3'"),
        ("gemma2", {"query_pre_attn_scalar": 100}, "query_pre_attn_scalar"),
        ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ("gemma3", {"layer_types": ["full_attention"]}, "1 layer_types for 7"),
        ("qwen3moe", {"norm_topk_prob": False}, "norm_topk_prob"),
        ("qwen3moe", {"mlp_only_layers": [0]}, "mlp_only_layers"),
        ("smollm3", {"no_rope_layers": [1, 1, 1, 1, 1]}, "no_rope_layers"),
        (
            "phi3-long",
            {"rope_parameters": {"type": "longrope", "long_factor": [1.0], "short_factor": [1.0]}},
            "long_factor",
        ),
        ("olmo2", {"tie_word_embeddings": True}, "tie_word_embeddings"),
        ("gpt-oss", {"swiglu_limit": 5.0}, "swiglu_limit"),
    ],
)
def test_settings_that_are_wrong_or_that_the_engine_does_not_compute_are_refused(
    tmp_path: Path, name: str, change: dict[str, Any], word: str
) -> None:
    folder = make_folder(tmp_path / "model", name, n_shards=1)
    folder.edit("config.json", lambda config: config.update(change))
    with pytest.raises(SourceError) as caught:
        open_source(folder.path)
    assert word in caught.value.message


def test_window_layers_that_the_engine_does_not_assume_are_written(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", "gemma3", n_shards=1)
    layers = ["sliding_attention", "full_attention"] * 3 + ["full_attention"]
    folder.edit("config.json", lambda config: config.update(layer_types=layers))
    pattern = open_source(folder.path).metadata["gemma3.attention.sliding_window_pattern"]
    assert pattern.value == [layer == "sliding_attention" for layer in layers]


def test_a_window_that_the_engine_does_not_apply_is_a_warning(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", "mistral", n_shards=1)
    folder.edit("config.json", lambda config: config.update(sliding_window=32))
    (warning,) = open_source(folder.path).warnings
    assert "32 tokens" in warning


def test_a_missing_expert_is_named(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", "qwen3moe", n_shards=1)
    names = [w for w in folder.weights if w[0] != "model.layers.1.mlp.experts.2.up_proj.weight"]
    assert len(names) == len(folder.weights) - 1
    folder.store(names)
    with pytest.raises(SourceError, match=r"layers\.1\.mlp\.experts\.up_proj.*experts 2 are missing"):
        open_source(folder.path)


def test_fused_experts_give_the_same_tensors_as_single_ones(tmp_path: Path) -> None:
    single = open_source(make_folder(tmp_path / "single", "qwen3moe", n_shards=1).path)
    fused_folder = make_folder(tmp_path / "fused", "qwen3moe", n_shards=1)
    ready = {n: (d, tuple(s), tiny.encode(n, d, tuple(s))) for n, d, s in fused_folder.weights}
    for layer in range(2):
        prefix = f"model.layers.{layer}.mlp.experts."
        gate_up, down = b"", b""
        for expert in range(4):
            for kind in ("gate", "up"):
                gate_up += ready.pop(f"{prefix}{expert}.{kind}_proj.weight")[2]
            down += ready.pop(f"{prefix}{expert}.down_proj.weight")[2]
        ready[prefix + "gate_up_proj"] = ("BF16", (4, 96, 64), gate_up)
        ready[prefix + "down_proj"] = ("BF16", (4, 64, 48), down)
    tiny.write_safetensors(fused_folder / "model.safetensors", ready)
    fused = {t.name: t for t in open_source(fused_folder.path).tensors}
    assert set(fused) == {t.name for t in single.tensors}
    for tensor in single.tensors:
        np.testing.assert_array_equal(fused[tensor.name].read(0, tensor.n_rows), tensor.read(0, tensor.n_rows))
