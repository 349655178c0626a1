"""The engine's low-level interface, for tests: write a model as F32, run it, tokenize with it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import llama_cpp.llama_cpp as api
import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType

from quantize.metadata import u32
from quantize.model import Model
from quantize.writer import TensorInfo, align, encode_header

_ALIGNMENT = 32


@api.llama_log_callback
def _silent(level: int, text: bytes, data: object) -> None:
    """The engine's log goes nowhere."""


api.llama_log_set(_silent, ctypes.c_void_p(0))
api.llama_backend_init()


def write_f32(model: Model, path: Path) -> Path:
    """Write every tensor as F32, MXFP4 ones too: with those the engine would round activations to 8 bits."""
    infos, blobs, at = [], [], 0
    for tensor in model.tensors:
        data = tensor.read(0, tensor.n_rows).tobytes()
        assert len(data) == tensor.n_values * 4
        infos.append(TensorInfo(tensor.name, tensor.shape, GGMLQuantizationType.F32, at))
        blobs.append(data + bytes(align(len(data), _ALIGNMENT) - len(data)))
        at += len(blobs[-1])
    path.write_bytes(
        encode_header({**model.metadata, "general.file_type": u32(0)}, infos, _ALIGNMENT) + b"".join(blobs)
    )
    return path


@contextmanager
def opened(path: Path, *, vocabulary_only: bool = False) -> Iterator[ctypes.c_void_p]:
    params = api.llama_model_default_params()
    params.vocab_only, params.n_gpu_layers = vocabulary_only, 0
    model = api.llama_model_load_from_file(str(path).encode(), params)
    assert model, f"the engine refused {path}"
    try:
        yield model
    finally:
        api.llama_model_free(model)


def logits(path: Path, prompts: list[list[int]], *, hidden: bool = False) -> npt.NDArray[np.float32]:
    """Logits, or the last hidden states, at every position.  # (prompts, tokens, vocabulary or width)"""
    with opened(path) as model:
        params = api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_threads, params.n_threads_batch = 64, 64, 64, 1, 1
        params.type_k = params.type_v = int(GGMLQuantizationType.F32)
        params.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.embeddings = hidden
        params.pooling_type = api.LLAMA_POOLING_TYPE_NONE
        context = api.llama_init_from_model(model, params)
        assert context
        width = api.llama_model_n_embd(model) if hidden else api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))
        try:
            return np.stack([_run(context, prompt, width, hidden) for prompt in prompts])
        finally:
            api.llama_free(context)


def _run(context: ctypes.c_void_p, prompt: list[int], width: int, hidden: bool) -> npt.NDArray[np.float32]:
    memory = api.llama_get_memory(context)
    if memory:
        api.llama_memory_clear(memory, True)
    batch = api.llama_batch_init(len(prompt), 0, 1)
    batch.n_tokens = len(prompt)
    for i, token in enumerate(prompt):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, i, 1, 0, 1
    run = api.llama_encode if hidden else api.llama_decode
    assert run(context, batch) == 0
    read = api.llama_get_embeddings_ith if hidden else api.llama_get_logits_ith
    rows = [np.ctypeslib.as_array(read(context, i), (width,)).copy() for i in range(len(prompt))]
    api.llama_batch_free(batch)
    return np.stack(rows)


def tokenize(model: ctypes.c_void_p, text: str, *, add_special: bool, parse_special: bool = True) -> list[int]:
    vocabulary, data = api.llama_model_get_vocab(model), text.encode()
    ids = (api.llama_token * (len(data) + 16))()
    n = api.llama_tokenize(vocabulary, data, len(data), ids, len(ids), add_special, parse_special)
    assert n >= 0
    return list(ids[:n])
