"""A model file → a model and a context in memory.

Knows headers, memory and the llama layer; knows no request. Invariants: the file is checked in Python before C sees
it, a context is never promised that memory cannot hold, and every step down (fewer GPU layers) is a warning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from localrun.errors import DoesNotFitError, ModelFileError
from localrun.gguf import GGUFHeader
from localrun.hardware.cpu import physical_cores, usable_cpus
from localrun.hardware.memory import available_memory, kv_bytes_per_token
from localrun.llama.context import MAX_SEQUENCES, ContextOptions, LlamaContext
from localrun.llama.library import supports_gpu
from localrun.llama.model import ALL_LAYERS, LlamaModel
from localrun.params import EngineParams
from localrun.responder import Warning_

_MEMORY_SHARE = 0.8
"""Share of the available memory that a context may take: the rest is for compute buffers and the user's programs."""
_N_CTX_UNKNOWN = 4096
_SMALLEST_START = 512
_IDLE_SLOTS = {"full": 6, "window": 1, "state": 2}
"""Sequences kept for their prefix. Each costs memory of its own where layers have a window or a state."""
_SAVING_SLOTS = 1


@dataclass(slots=True)
class Loaded:
    """A model in memory, and what was decided on the way."""

    model: LlamaModel
    gpu_layers: int
    warnings: list[Warning_] = field(default_factory=list)


def load_model(
    path: Path, header: GGUFHeader, params: EngineParams, progress: Callable[[float], bool] | None = None
) -> Loaded:
    """Read the weights. With automatic GPU layers, a card that is too small gets fewer, and says so."""
    gpu = supports_gpu()
    wanted = params.gpu_layers if params.gpu_layers is not None else (ALL_LAYERS if gpu else 0)
    warnings = []
    if params.gpu_layers and not gpu:
        warnings.append(
            Warning_(
                "no_gpu", "--gpu-layers was given, but the engine was built without a GPU backend: it runs on the CPU"
            )
        )
    tries = [wanted]
    if params.gpu_layers is None and gpu:
        n_layers = header.n_layers or 32
        tries += [n_layers * 3 // 4, n_layers // 2, n_layers // 4, 0]
    for i, layers in enumerate(tries):
        try:
            model = LlamaModel.load(path, gpu_layers=layers, use_mmap=params.use_mmap, progress=progress)
        except DoesNotFitError:
            if i + 1 == len(tries):
                raise
            message = f"{layers if layers < ALL_LAYERS else 'all'} layers do not fit on the GPU: trying {tries[i + 1]}"
            warnings.append(Warning_("fewer_gpu_layers", message))
            continue
        if not model.can_generate:
            model.close()
            raise ModelFileError(f"{path} is an embedding model: it cannot generate text")
        return Loaded(model, layers, warnings)
    raise AssertionError("one of the tries returned or raised")


@dataclass(frozen=True, slots=True)
class ContextPlan:
    """How long a sequence may get, and why."""

    n_ctx: int
    warnings: tuple[Warning_, ...] = ()


def plan_context(header: GGUFHeader, params: EngineParams) -> ContextPlan:
    """The context per sequence: what was asked for, else the trained length, within the memory there is.

    Raises `DoesNotFitError` for a context that was asked for and does not fit.
    """
    trained = header.n_ctx_train or _N_CTX_UNKNOWN
    per_token = kv_bytes_per_token(header, params.kv_type)
    room = int(available_memory() * _MEMORY_SHARE)
    fits = room // per_token if per_token else trained
    if params.n_ctx is None:
        n_ctx = max(_SMALLEST_START, min(trained, fits))
        if n_ctx < trained:
            message = f"the context is {n_ctx:,} tokens instead of the trained {trained:,}: more does not fit in memory"
            return ContextPlan(n_ctx, (Warning_("context_reduced", message),))
        return ContextPlan(n_ctx)
    if params.n_ctx > fits:
        need = params.n_ctx * per_token / 1e9
        raise DoesNotFitError(
            f"a context of {params.n_ctx:,} tokens needs {need:.1f} GB of memory, {room / 1e9:.1f} GB are free",
            hint=f"--ctx {fits // 256 * 256} fits" + ("" if params.kv_type == "q8_0" else "; --kv-type q8_0 halves it"),
        )
    if params.n_ctx > trained:
        message = f"the context of {params.n_ctx:,} tokens is longer than the {trained:,} the model was trained with"
        return ContextPlan(params.n_ctx, (Warning_("context_beyond_training", message),))
    return ContextPlan(params.n_ctx)


def open_context(loaded: Loaded, header: GGUFHeader, params: EngineParams, n_ctx: int, n_first: int) -> LlamaContext:
    """A context for sequences of up to `n_ctx` tokens; memory is taken for `n_first` tokens and grows from there."""
    model = loaded.model
    kind = "state" if model.keeps_state else "window" if model.n_swa else "full"
    n_seq_max = min(MAX_SEQUENCES, params.n_parallel + _IDLE_SLOTS[kind] + _SAVING_SLOTS)
    n_cells = n_ctx * params.n_parallel
    start = n_cells if _fixed_length(header) else max(_SMALLEST_START, -(-n_first // 256) * 256)
    cores = physical_cores()
    threads = params.threads or cores
    flash = params.flash_attention
    if flash is None and not loaded.gpu_layers:
        # Measured on CPU at depth 512: decoding 112 tokens/s without, 86 with; prefill about equal.
        flash = False
    return LlamaContext(
        model,
        ContextOptions(
            n_ctx_seq=n_ctx,
            n_cells=n_cells,
            n_cells_start=start,
            n_seq_max=n_seq_max,
            n_batch=params.n_batch,
            n_ubatch=params.n_ubatch,
            threads=threads,
            threads_prefill=params.threads or min(usable_cpus(), 2 * cores),
            n_outputs_max=max(32, 16 * params.n_parallel),
            kv_type=params.kv_type,
            flash_attention=flash,
        ),
    )


def _fixed_length(header: GGUFHeader) -> bool:
    """Whether the context's length changes the model's arithmetic (LongRoPE picks its factors by it)."""
    return any(tensor.name.startswith("rope_factors_long") for tensor in header.tensors)
