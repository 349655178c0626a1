"""A model in memory → a context for its sequences.

Knows the llama layer and the plan; knows no request. Invariants: a context is never promised that memory cannot hold,
and what the memory took is told to the planner.
"""

from __future__ import annotations

from localrun.engine.pieces import GROUP
from localrun.errors import DoesNotFitError
from localrun.gguf import GGUFHeader
from localrun.hardware.correction import learn
from localrun.hardware.cpu import physical_cores, usable_cpus
from localrun.hardware.planner import n_sequences
from localrun.llama.buffers import buffer_sizes
from localrun.llama.context import ContextOptions, LlamaContext, least_tail
from localrun.local.loading import Loaded
from localrun.params import EngineParams
from localrun.responder import Warning_

_SMALLEST_START = 512


def open_context(loaded: Loaded, header: GGUFHeader, params: EngineParams, n_ctx: int, n_first: int) -> LlamaContext:
    """A context for sequences of up to `n_ctx` tokens; memory is taken for `n_first` tokens and grows from there.

    Where memory runs out after all, an automatic context is halved, with a warning in `loaded`. Raises
    `DoesNotFitError` for one that was asked for, and when not even the smallest can be had.
    """
    while True:
        try:
            return _make_context(loaded, header, params, n_ctx, n_first)
        except DoesNotFitError:
            if params.n_ctx is not None or n_ctx <= _SMALLEST_START:
                raise
            shorter = max(_SMALLEST_START, n_ctx // 2)
            message = f"a context of {n_ctx:,} tokens does not fit in memory: trying {shorter:,}"
            loaded.warnings.append(Warning_("context_reduced", message))
            n_ctx, n_first = shorter, min(n_first, shorter * params.n_parallel)


def _make_context(loaded: Loaded, header: GGUFHeader, params: EngineParams, n_ctx: int, n_first: int) -> LlamaContext:
    planner = loaded.plan.planner
    n_cells = n_ctx * params.n_parallel
    start = n_cells if _fixed_length(header) else min(n_cells, max(_SMALLEST_START, -(-n_first // 256) * 256))
    cores = physical_cores()
    flash = params.flash_attention
    if flash is None and not loaded.gpu_layers:
        # Measured on CPU at depth 512: decoding 112 tokens/s without, 86 with; prefill about equal. Only a context
        # whose attention scores would not fit in memory turns it on.
        flash = loaded.plan.load.flash_attention
    least = least_tail(flash=flash, kv_type=params.kv_type) + GROUP
    n_ubatch = max(params.n_ubatch, least) // GROUP * GROUP  # so that prompts can be cut where they should be
    options = ContextOptions(
        n_ctx_seq=n_ctx,
        n_cells=n_cells,
        n_cells_start=start,
        n_seq_max=n_sequences(planner.shape, params.n_parallel),
        n_batch=max(params.n_batch, n_ubatch),
        n_ubatch=n_ubatch,
        threads=params.threads or cores,
        threads_prefill=params.threads or min(usable_cpus(), 2 * cores),
        n_outputs_max=max(32, 16 * params.n_parallel),
        kv_type=params.kv_type,
        flash_attention=flash,
    )
    with buffer_sizes() as taken:
        context = LlamaContext(loaded.model, options)
    planned = planner.placement(start // params.n_parallel, loaded.gpu_layers, flash=bool(flash or loaded.gpu_layers))
    if loaded.bytes_taken is not None and taken.complete:
        learn(planned.total, loaded.bytes_taken + taken.total)
    return context


def _fixed_length(header: GGUFHeader) -> bool:
    """Whether the context's length changes the model's arithmetic (LongRoPE picks its factors by it)."""
    return any(tensor.name.startswith("rope_factors_long") for tensor in header.tensors)
