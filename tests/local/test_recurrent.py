"""A model with a running state, which cannot be cut: what is reused must be exactly what was computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFValueType, GGUFWriter

from localrun.engine.ports import Span
from localrun.gguf import read_header
from tests.hardware.kinds import granite_hybrid
from tests.local.conftest import Open, raw, result
from tests.sdist import vocabulary_file

N_EMBD, N_INNER, N_STATE, N_CONV, N_RANK, N_LAYERS = 32, 64, 8, 4, 2, 2


def add_vocabulary(writer: GGUFWriter) -> int:
    """GPT-2's; returns how many tokens it has."""
    vocabulary = read_header(vocabulary_file("gpt-2"), runnable=False)
    tokens = [str(token).encode() for token in vocabulary.array("tokenizer.ggml.tokens") or ()]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([int(kind) for kind in vocabulary.array("tokenizer.ggml.token_type") or ()])
    writer.add_token_merges([str(merge) for merge in vocabulary.array("tokenizer.ggml.merges") or ()])
    writer.add_eos_token_id(50256)
    return len(tokens)


def finish(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Granite 4 hybrid with random weights: running states in half of its layers, attention in the others."""
    path = tmp_path_factory.mktemp("hybrid") / "hybrid.gguf"
    keys, tensors = granite_hybrid()
    writer = GGUFWriter(path, "granitehybrid")
    for key, value in keys.items():
        if isinstance(value, tuple) and not key.endswith("vocab_size"):
            if isinstance(value[1], list):
                writer.add_array(key, value[1])
            else:
                writer.add_key_value(key, value[1], GGUFValueType(value[0]))
    n_vocab = add_vocabulary(writer)
    rng = np.random.default_rng(11)
    for name, dims, _ in tensors:
        shape = tuple(reversed((dims[0], n_vocab) if name == "token_embd.weight" else dims))
        values = np.ones(shape) if "norm" in name else rng.standard_normal(shape) * 0.1
        writer.add_tensor(name, (-np.abs(values) if name.endswith("ssm_a") else values).astype(np.float32))
    finish(writer)
    return path


@pytest.fixture(scope="module")
def mamba(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Mamba with random weights and the vocabulary of GPT-2."""
    path = tmp_path_factory.mktemp("mamba") / "mamba.gguf"
    writer = GGUFWriter(path, "mamba")
    writer.add_context_length(512)
    writer.add_embedding_length(N_EMBD)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_block_count(N_LAYERS)
    writer.add_ssm_conv_kernel(N_CONV)
    writer.add_ssm_inner_size(N_INNER)
    writer.add_ssm_state_size(N_STATE)
    writer.add_ssm_time_step_rank(N_RANK)
    writer.add_layer_norm_rms_eps(1e-5)
    n_vocab = add_vocabulary(writer)
    rng = np.random.default_rng(7)

    def tensor(name: str, *shape: int, scale: float = 0.3) -> None:
        writer.add_tensor(name, (rng.standard_normal(shape) * scale).astype(np.float32))

    tensor("token_embd.weight", n_vocab, N_EMBD)
    writer.add_tensor("output_norm.weight", np.ones(N_EMBD, dtype=np.float32))
    for i in range(N_LAYERS):
        writer.add_tensor(f"blk.{i}.attn_norm.weight", np.ones(N_EMBD, dtype=np.float32))
        tensor(f"blk.{i}.ssm_in.weight", 2 * N_INNER, N_EMBD)
        tensor(f"blk.{i}.ssm_conv1d.weight", N_INNER, N_CONV)
        tensor(f"blk.{i}.ssm_conv1d.bias", N_INNER)
        tensor(f"blk.{i}.ssm_x.weight", N_RANK + 2 * N_STATE, N_INNER)
        tensor(f"blk.{i}.ssm_dt.weight", N_INNER, N_RANK)
        tensor(f"blk.{i}.ssm_dt.bias", N_INNER)
        writer.add_tensor(f"blk.{i}.ssm_a", -np.ones((N_INNER, N_STATE), dtype=np.float32))
        tensor(f"blk.{i}.ssm_d", N_INNER)
        tensor(f"blk.{i}.ssm_out.weight", N_EMBD, N_INNER)
    finish(writer)
    return path


@pytest.fixture(params=["mamba", "hybrid"])
def stateful(request: pytest.FixtureRequest) -> str:
    """The path of each model in turn."""
    return str(request.getfixturevalue(request.param))


def test_its_memory_says_that_it_cannot_be_cut(stateful: str, open_model: Open) -> None:
    responder = open_model(stateful, n_ctx=512)
    result(responder, raw("one two three", 4))
    context = responder._context
    assert context is not None
    assert context.memory_kind == "state"
    context.decode([Span(0, context.last_position(0) + 1, [1, 2, 3], "none")])
    assert not context.remove(0, 2, -1)


def test_turns_edits_and_repeats_say_what_a_fresh_process_says(stateful: str, open_model: Open) -> None:
    first = "The first turn of a talk."
    responder = open_model(stateful, n_ctx=512, cache=True)
    answer = result(responder, raw(first, 8))
    longer = first + answer.text + " The second turn."
    prompts = [longer, first + " An edited second turn.", longer, first]
    for prompt in prompts:
        cold = result(open_model(stateful, n_ctx=512), raw(prompt, 8))
        warm = result(responder, raw(prompt, 8))
        assert warm.text == cold.text


def test_a_fresh_process_goes_on_from_a_state_on_disk(stateful: str, open_model: Open) -> None:
    document = "A long document. " * 40
    cold = [result(open_model(stateful, n_ctx=512), raw(document + question, 8)) for question in ("What?", "And why?")]
    assert cold[0].text != cold[1].text
    first = result(open_model(stateful, n_ctx=512, cache=True), raw(document + "What?", 8))
    again = result(open_model(stateful, n_ctx=512, cache=True), raw(document + "What?", 8))
    other = result(open_model(stateful, n_ctx=512, cache=True), raw(document + "And why?", 8))
    assert (first.usage.cached_disk_tokens, first.text) == (0, cold[0].text)
    assert again.text == cold[0].text
    assert again.usage.prompt_tokens - again.usage.cached_disk_tokens <= 32
    assert other.text == cold[1].text
    turn = document + "What?" + first.text + " The next turn."
    assert result(open_model(stateful, n_ctx=512, cache=True), raw(turn, 8)).usage.cached_disk_tokens > 0
