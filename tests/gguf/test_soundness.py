"""What ends the process inside the engine is refused before the engine sees it, and what it runs is not refused."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from localrun.errors import ModelFileError
from localrun.gguf import read_header
from tests.gguf.writer import F32, I32, STRING, U32, gguf_bytes
from tests.quantize.synthetic import vocabulary

TOKENS = list(vocabulary()["tokenizer.ggml.tokens"].value)  # type: ignore[call-overload]
N = len(TOKENS)
EMBD, FF, EXPERTS = 32, 64, 4
KEYS: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": (U32, 1),
    "llama.context_length": (U32, 128),
    "llama.embedding_length": (U32, EMBD),
    "llama.feed_forward_length": (U32, FF),
    "llama.vocab_size": (U32, N),
    "llama.attention.head_count": (U32, 2),
    "llama.rope.dimension_count": (U32, 16),
    "llama.rope.freq_base": (F32, 1e4),
    "llama.rope.scaling.type": "linear",
    "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5),
    "llama.expert_count": (U32, EXPERTS),
    "llama.expert_used_count": (U32, 2),
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": (I32, [1] * N),
    "tokenizer.ggml.scores": (F32, [0.0] * N),
    "tokenizer.ggml.merges": ["t h"],
    "tokenizer.ggml.bos_token_id": (U32, N - 1),
    "tokenizer.ggml.eos_token_id": (U32, N - 1),
}
BYTES = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
SENTENCE_PIECE: dict[str, Any] = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": BYTES,
    "tokenizer.ggml.token_type": None,
    "tokenizer.ggml.scores": (F32, [-float(number) for number in range(len(BYTES))]),
}


def model(path: Path, changed: dict[str, Any]) -> Path:
    """A model of one layer with experts, which the engine can run if nothing is changed; None removes a key."""
    keys = {key: value for key, value in (KEYS | changed).items() if value is not None}
    tokens = keys.get("tokenizer.ggml.tokens")
    rows = len(tokens) if isinstance(tokens, list) and tokens else N
    block = "blk.0."
    tensors: list[tuple[str, tuple[int, ...], int]] = [("token_embd.weight", (EMBD, rows), 0)]
    tensors += [(f"{block}{kind}_norm.weight", (EMBD,), 0) for kind in ("attn", "ffn")]
    tensors += [(f"{block}attn_{kind}.weight", (EMBD, EMBD), 0) for kind in ("q", "k", "v", "output")]
    experts, suffix = ((EXPERTS,), "_exps") if "llama.expert_count" in keys else ((), "")
    if experts:
        tensors += [(f"{block}ffn_gate_inp.weight", (EMBD, EXPERTS), 0)]
    tensors += [(f"{block}ffn_{kind}{suffix}.weight", (EMBD, FF, *experts), 0) for kind in ("gate", "up")]
    tensors += [(f"{block}ffn_down{suffix}.weight", (FF, EMBD, *experts), 0), ("output_norm.weight", (EMBD,), 0)]
    path.write_bytes(gguf_bytes(keys, tensors))
    return path


# The engine ends the process at these, ...
ABORTS: list[tuple[str, Any]] = [
    ("llama.block_count", (U32, 0)),
    ("llama.block_count", (U32, 513)),
    ("llama.block_count", (U32, 2**32 - 1)),
    ("llama.nextn_predict_layers", (U32, 2)),
    ("llama.attention.layer_norm_rms_epsilon", (F32, -1.0)),
    ("llama.attention.layer_norm_rms_epsilon", (F32, math.nan)),
    ("llama.attention.layer_norm_rms_epsilon", (F32, -math.inf)),
    ("llama.rope.scaling.type", "nonsense"),
    ("llama.expert_count", (U32, 0)),
    ("llama.expert_count", (U32, 1025)),
    ("llama.expert_used_count", (U32, 0)),
    ("llama.expert_used_count", None),
    ("llama.expert_used_count", (U32, 5)),
    ("llama.expert_group_count", (U32, 3)),
    ("llama.expert_group_count", (U32, 4)),
    ("llama.expert_group_count", (U32, 2)),
    ("tokenizer.ggml.model", "none"),
    ("tokenizer.ggml.model", "no_vocab"),
    ("tokenizer.ggml.model", "llama"),
    ("tokenizer.ggml.tokens", ["a"] * N),
]
NAMED: dict[str, str] = {
    "llama.expert_count=0": "llama.expert_used_count",
    "tokenizer.ggml.model=llama": "tokenizer.ggml.tokens",
    "llama.expert_group_count=2": "llama.expert_group_used_count",
}
# ... and refuses these, or computes nonsense.
NONSENSE: list[tuple[str, Any]] = [
    ("llama.attention.layer_norm_rms_epsilon", (F32, math.inf)),
    ("llama.attention.layer_norm_epsilon", (F32, math.nan)),
    ("llama.attention.layer_norm_epsilon", (F32, -0.5)),
    ("llama.block_count", (I32, -1)),
    ("llama.embedding_length", (U32, 0)),
    ("llama.embedding_length", (U32, 2**31)),
    ("llama.context_length", (U32, 0)),
    ("llama.context_length", (U32, 2**32 - 1)),
    ("llama.attention.head_count", (U32, 2**31)),
    ("llama.attention.head_count_kv", (U32, 2**31)),
    ("llama.feed_forward_length", (U32, 2**32 - 1)),
    ("llama.vocab_size", (U32, 2**32 - 1)),
    ("llama.rope.freq_base", (F32, math.nan)),
    ("llama.rope.freq_base", (F32, -1.0)),
    ("llama.rope.scaling.factor", (F32, math.inf)),
    ("llama.attention.scale", (F32, math.nan)),
    ("tokenizer.ggml.model", None),
    ("tokenizer.ggml.tokens", (STRING, [])),
    ("tokenizer.ggml.tokens", None),
    ("tokenizer.ggml.tokens", (I32, [1] * N)),
    ("tokenizer.ggml.token_type", (I32, [1] * 5)),
    ("tokenizer.ggml.token_type", (I32, [])),
    ("tokenizer.ggml.scores", (F32, [0.0] * 5)),
    ("tokenizer.ggml.scores", (F32, [0.0] * (N - 1) + [math.nan])),
]


@pytest.mark.parametrize(("key", "value"), [*ABORTS, *NONSENSE])
def test_a_value_that_no_model_can_run_with_is_refused_by_name(tmp_path: Path, key: str, value: Any) -> None:
    path = model(tmp_path / "m.gguf", {key: value})
    plain = value[1] if isinstance(value, tuple) else value
    with pytest.raises(ModelFileError) as caught:
        read_header(path)
    assert NAMED.get(f"{key}={plain}", key) in caught.value.message
    assert caught.value.exit_code == 2
    assert read_header(path, runnable=False).version == 3


FINE: dict[str, dict[str, Any]] = {
    "as it is": {},
    "without experts": {"llama.expert_count": None, "llama.expert_used_count": None},
    "an epsilon of zero": {"llama.attention.layer_norm_rms_epsilon": (F32, 0.0)},
    "no scores": {"tokenizer.ggml.scores": None},
    "infinite scores": {"tokenizer.ggml.scores": (F32, [math.inf, -math.inf] * (N // 2))},
    "more types than tokens": {"tokenizer.ggml.token_type": (I32, [1] * (N + 9))},
    "ids outside the vocabulary": {
        f"tokenizer.ggml.{name}_token_id": (U32, number)
        for name, number in (("bos", N), ("eos", 2**31), ("padding", 2**32 - 1), ("unknown", N + 7))
    },
    "sentence piece": SENTENCE_PIECE,
    "empty tokens": {"tokenizer.ggml.tokens": [*TOKENS[:-2], "", ""]},
    "tokens that are not UTF-8": {"tokenizer.ggml.tokens": [*TOKENS[:-2], b"\xff", b"\xfe"]},
}


@pytest.mark.parametrize("name", FINE)
def test_what_the_engine_runs_is_not_refused(tmp_path: Path, name: str) -> None:
    assert read_header(model(tmp_path / "m.gguf", FINE[name])).architecture == "llama"


def test_what_needs_no_text_needs_no_vocabulary(tmp_path: Path) -> None:
    path = model(tmp_path / "m.gguf", {"tokenizer.ggml.model": "no_vocab", "tokenizer.ggml.tokens": None})
    assert read_header(path, vocabulary=False).n_layers == 1
    model(path, {"llama.block_count": (U32, 0)})
    with pytest.raises(ModelFileError, match=r"llama\.block_count"):
        read_header(path, vocabulary=False)


def test_a_byte_without_a_token_is_refused_where_the_tokenizer_needs_all(tmp_path: Path) -> None:
    path = model(tmp_path / "m.gguf", SENTENCE_PIECE | {"tokenizer.ggml.tokens": [*BYTES[:-1], "last"]})
    with pytest.raises(ModelFileError, match="no token for the byte 255"):
        read_header(path)
    assert read_header(model(path, SENTENCE_PIECE | {"tokenizer.ggml.tokens": [*BYTES[:-1], b"\xff"]}))


def test_a_beginning_that_is_added_must_be_a_token(tmp_path: Path) -> None:
    added = SENTENCE_PIECE | {"tokenizer.ggml.model": "t5", "tokenizer.ggml.add_bos_token": True}
    with pytest.raises(ModelFileError, match="bos_token_id None"):
        read_header(model(tmp_path / "m.gguf", added | {"tokenizer.ggml.bos_token_id": None}))
    assert read_header(model(tmp_path / "m.gguf", added))


ENGINE = r"""
import ctypes, sys
import llama_cpp as engine

quiet = engine.llama_log_callback(lambda *_: None)
engine.llama_log_set(quiet, ctypes.c_void_p(0))
model = engine.llama_model_load_from_file(sys.argv[1].encode(), engine.llama_model_default_params())
if not model:
    sys.exit(3)
found = (engine.llama_token * 64)()
engine.llama_tokenize(engine.llama_model_get_vocab(model), b"the <x>\xff\xe9", 9, found, 64, True, True)
params = engine.llama_context_default_params()
params.n_ctx, params.n_threads, params.n_threads_batch = 64, 1, 1
context = engine.llama_init_from_model(model, params)
engine.llama_decode(context, engine.llama_batch_get_one((engine.llama_token * 3)(1, 2, 3), 3))
"""


def engine_ends(path: Path) -> int:
    """How a process ends in which the engine loads this file, makes tokens of a text and evaluates three."""
    program = [sys.executable, "-c", ENGINE, str(path)]
    return subprocess.run(program, capture_output=True, check=False, timeout=60).returncode


@pytest.mark.slow
@pytest.mark.parametrize(("key", "value"), ABORTS)
def test_the_engine_ends_the_process_at_what_is_refused_for_that(tmp_path: Path, key: str, value: Any) -> None:
    assert engine_ends(model(tmp_path / "m.gguf", {key: value})) < 0


@pytest.mark.slow
@pytest.mark.parametrize("name", FINE)
def test_the_engine_runs_what_is_accepted(tmp_path: Path, name: str) -> None:
    assert engine_ends(model(tmp_path / "m.gguf", FINE[name])) == 0
