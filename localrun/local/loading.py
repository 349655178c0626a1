"""A model file → a model and a context in memory.

Knows headers, memory and the llama layer; knows no request. Invariants: the file is checked in Python before C sees
it, a context is never promised that memory cannot hold, and every step down (fewer GPU layers) is a warning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from localrun.errors import DoesNotFitError, ModelFileError
from localrun.gguf import GGUFHeader
from localrun.hardware.correction import learn, memory_correction
from localrun.hardware.cpu import physical_cores, usable_cpus
from localrun.hardware.planner import LoadPlan, Planner, n_sequences
from localrun.hardware.shape import model_shape
from localrun.hardware.tuning import tuned_for
from localrun.llama.buffers import buffer_sizes
from localrun.llama.context import ContextOptions, LlamaContext
from localrun.llama.devices import gpu_devices, gpu_is_compiled_in
from localrun.llama.model import LlamaModel
from localrun.params import EngineParams
from localrun.responder import Warning_

_SMALLEST_START = 512


def with_tuning(params: EngineParams, path: Path) -> tuple[EngineParams, int]:
    """The parameters with what `bench --tune` found for this model here, and how many threads decode best.

    What the caller asked for stays as it is. The count of threads is an upper end: the load may ask for fewer.
    """
    tuned = tuned_for(path)
    if tuned is None:
        return params, physical_cores()
    # Off is what a CPU takes anyway; saying so would keep the planner from turning it on for a very long context.
    flash = params.flash_attention if params.flash_attention is not None else tuned.flash_attention or None
    n_ubatch = tuned.n_ubatch if params.n_ubatch == EngineParams().n_ubatch else params.n_ubatch
    return replace(params, flash_attention=flash, n_ubatch=n_ubatch), max(1, tuned.threads)


@dataclass(slots=True)
class Loaded:
    """A model in memory, and what was decided on the way."""

    model: LlamaModel
    gpu_layers: int
    plan: ContextPlan
    bytes_taken: int | None
    """By the weights, as the engine says; None if nobody listened."""
    warnings: list[Warning_] = field(default_factory=list)


def load_model(
    path: Path,
    params: EngineParams,
    plan: ContextPlan,
    progress: Callable[[float], bool] | None = None,
) -> Loaded:
    """Read the weights. With automatic GPU layers, a card that is too small after all gets fewer, and says so."""
    wanted = plan.load.gpu_layers
    warnings = []
    if params.gpu_layers and not plan.planner.devices:
        warnings.append(Warning_("no_gpu", "--gpu-layers was given, but the engine sees no GPU: it runs on the CPU"))
    tries = [wanted]
    if params.gpu_layers is None and wanted:
        tries += sorted({wanted * 3 // 4, wanted // 2, wanted // 4, 0} - {wanted}, reverse=True)
    for i, layers in enumerate(tries):
        try:
            with buffer_sizes() as taken:
                model = LlamaModel.load(
                    path,
                    gpu_layers=layers,
                    use_mmap=params.use_mmap,
                    experts_in_ram=plan.load.placement.experts_in_ram if layers else 0,
                    progress=progress,
                )
        except DoesNotFitError:
            if i + 1 == len(tries):
                raise
            message = f"{layers} layers do not fit on the GPU: trying {tries[i + 1]}"
            warnings.append(Warning_("fewer_gpu_layers", message))
            continue
        if not model.can_generate:
            model.close()
            raise ModelFileError(f"{path} is an embedding model: it cannot generate text")
        return Loaded(model, layers, plan, taken.total if taken.complete else None, warnings)
    raise AssertionError("one of the tries returned or raised")


@dataclass(frozen=True, slots=True)
class ContextPlan:
    """How long a sequence may get, and why."""

    load: LoadPlan
    planner: Planner
    warnings: tuple[Warning_, ...] = ()

    @property
    def n_ctx(self) -> int:
        return self.load.n_ctx


def plan_context(header: GGUFHeader, params: EngineParams) -> ContextPlan:
    """The context per sequence: what was asked for, else the trained length, within the memory there is.

    Raises `DoesNotFitError` for a context that was asked for and does not fit.
    """
    devices = gpu_devices() if params.gpu_layers != 0 and gpu_is_compiled_in() else []
    planner = Planner(model_shape(header), params, devices, correction=memory_correction())
    load = planner.plan()
    return ContextPlan(load, planner, tuple(Warning_(notice.code, notice.message) for notice in load.notices))


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
    options = ContextOptions(
        n_ctx_seq=n_ctx,
        n_cells=n_cells,
        n_cells_start=start,
        n_seq_max=n_sequences(planner.shape, params.n_parallel),
        n_batch=params.n_batch,
        n_ubatch=params.n_ubatch,
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
