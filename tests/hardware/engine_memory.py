"""Asks the engine how much memory it would take for a model and a context, without weights and without taking it.

The engine's `no_alloc` mode plans every buffer and logs its size: the second opinion for our planner.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localrun.llama.library import bindings, listen

_BUFFER = re.compile(r"(KV|RS|compute|output|model) buffer size =\s+([\d.]+) MiB")
_KV_SIZE = re.compile(r"llama_kv_cache: size =\s+([\d.]+) MiB")


@dataclass(frozen=True)
class EngineMemory:
    """Bytes, as the engine says (to a hundredth of a MiB)."""

    weights: int
    kv: int
    state: int
    compute: int
    output: int


@contextmanager
def log_lines() -> Iterator[list[str]]:
    lines: list[str] = []
    listen()

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger = logging.getLogger("localrun.engine.native")
    handler, level = Keep(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def engine_memory(
    path: Path,
    *,
    n_ctx: int,
    n_seq_max: int = 8,
    n_batch: int = 2048,
    n_ubatch: int = 512,
    n_outputs_max: int = 32,
    kv_type: int = 1,
    flash: bool = False,
    allocate: bool = False,
) -> EngineMemory:
    """What the engine plans (with `allocate`, what it takes) for `path` and a context of `n_ctx` cells."""
    lib: Any = bindings()
    with log_lines() as lines:
        params = lib.llama_model_default_params()
        params.no_alloc = not allocate
        params.load_mode = lib.LLAMA_LOAD_MODE_NONE
        params.n_gpu_layers = 0
        model = lib.llama_model_load_from_file(str(path).encode(), params)
        assert model, "\n".join(lines[-5:])
        context_params = lib.llama_context_default_params()
        context_params.n_ctx, context_params.n_batch, context_params.n_ubatch = n_ctx, n_batch, n_ubatch
        context_params.n_seq_max, context_params.n_outputs_max = n_seq_max, n_outputs_max
        context_params.type_k = context_params.type_v = kv_type
        context_params.flash_attn_type = int(flash)
        context_params.kv_unified, context_params.swa_full = True, False
        context = lib.llama_init_from_model(model, context_params)
        assert context, "\n".join(lines[-5:])
        lib.llama_free(context)
        lib.llama_model_free(model)
    found: dict[str, float] = {}
    for line in lines:
        if match := _BUFFER.search(line):
            found[match[1]] = found.get(match[1], 0) + float(match[2])
        if match := _KV_SIZE.search(line):
            found["planned kv"] = found.get("planned kv", 0) + float(match[1])
    mib = {name: round(value * 2**20) for name, value in found.items()}
    return EngineMemory(
        weights=mib.get("model", 0),
        kv=mib.get("planned kv", 0),
        state=mib.get("RS", 0),
        compute=mib.get("compute", 0),
        output=mib.get("output", 0),
    )
