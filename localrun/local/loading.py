"""A model file → a model in memory, read on a thread.

Knows headers, memory and the llama layer; knows no engine and no request, so that the engine can be imported while the
library reads. Invariants: the file is checked in Python before C sees it, and every step down (fewer GPU layers) is a
warning.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path

from localrun.errors import DoesNotFitError, ModelFileError
from localrun.gguf import GGUFHeader, fingerprint, read_header
from localrun.hardware.correction import memory_correction
from localrun.hardware.cpu import physical_cores
from localrun.hardware.planner import LoadPlan, Planner
from localrun.hardware.shape import model_shape
from localrun.hardware.tuning import tuned_for
from localrun.llama.buffers import buffer_sizes
from localrun.llama.model import LlamaModel
from localrun.local.devices import devices_for
from localrun.local.weights import check_small_weights
from localrun.params import EngineParams
from localrun.responder import Warning_


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

    def where(self, params: EngineParams) -> str:
        """Which devices hold what, as far as it may change how they round."""
        experts = self.plan.load.placement.experts_in_ram if self.gpu_layers else 0
        parts = (
            f"gpu layers {self.gpu_layers}",
            f"experts in RAM {experts}" if experts else "",
            params.spread.describe() if self.gpu_layers else "",
        )
        return " · ".join(part for part in parts if part)


def load_model(
    path: Path,
    params: EngineParams,
    plan: ContextPlan,
    progress: Callable[[float], bool] | None = None,
) -> Loaded:
    """Read the weights. With automatic GPU layers, a card that is too small after all gets fewer, and says so."""
    wanted = plan.load.gpu_layers
    warnings = [
        Warning_("no_gpu", f"{flag} was given, but the engine sees no GPU: it runs on the CPU")
        for flag in (unused_gpu_settings(params) if not plan.planner.devices else ())
    ]
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
                    spread=params.spread,
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


def unused_gpu_settings(params: EngineParams) -> list[str]:
    """The settings that mean nothing on a machine without a GPU. Experts in RAM is what a CPU does anyway."""
    spread = params.spread
    given = {
        "--gpu-layers": params.gpu_layers,
        "--split-mode": spread.split_mode,
        "--tensor-split": spread.tensor_split,
        "--main-gpu": spread.main_gpu is not None,
    }
    return [flag for flag, value in given.items() if value and params.gpu_layers != 0]


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
    planner = Planner(model_shape(header), params, devices_for(params), correction=memory_correction())
    load = planner.plan()
    return ContextPlan(load, planner, tuple(Warning_(notice.code, notice.message) for notice in load.notices))


class Loading:
    """A model file that is being read, by a thread that began with this object."""

    def __init__(self, path: Path, params: EngineParams, on_load: Callable[[float], None] | None = None) -> None:
        """Checks the file, then starts to load it. Raises `ModelFileError` or `DoesNotFitError`."""
        self.path = path
        self.header: GGUFHeader = read_header(path)
        self.params, self.cores = with_tuning(params, path)
        self.plan = plan_context(self.header, self.params)
        self.seconds = 0.0
        """How long it took, once it is there."""
        self.stopping = threading.Event()
        """Set by who does not want the model any more, or wants no answer any more."""
        self._on_load = on_load
        self._loaded: Future[Loaded] = Future()
        self._content: Future[str] = Future()
        self._reader = threading.Thread(target=self._load, name="localrun-loader", daemon=True)
        try:
            self._reader.start()
            if self.params.cache:
                threading.Thread(target=self._identify, name="localrun-identity", daemon=True).start()
        except BaseException:  # Ctrl-C while they began: nobody will have it to close it
            self.close()
            raise

    def wait(self) -> Loaded:
        """The model, when it is there. Raises what loading raised."""
        return self._loaded.result()

    @property
    def is_done(self) -> bool:
        """Whether `wait` would not wait."""
        return self._loaded.done()

    def fingerprint(self) -> str:
        """The identity of the model's content, which the cache needs. Waits for it."""
        return self._content.result()

    def close(self, *, free: bool = True) -> None:
        """Stop loading, and free the model if that is wanted. Idempotent."""
        self.stopping.set()
        if self._reader.ident is None:
            return
        self._reader.join()
        if free and self._loaded.exception() is None:
            self._loaded.result().model.close()

    def _load(self) -> None:
        started = time.perf_counter()

        def progress(fraction: float) -> bool:
            if self._on_load is not None:
                self._on_load(fraction)
            return not self.stopping.is_set()

        try:
            check_small_weights(self.header)
            loaded = load_model(self.path, self.params, self.plan, progress)
        except BaseException as error:  # handed to whoever waits for the model
            self._loaded.set_exception(error)
            return
        self.seconds = time.perf_counter() - started
        self._loaded.set_result(loaded)

    def _identify(self) -> None:
        try:
            self._content.set_result(fingerprint(self.header))
        except Exception as error:  # handed to whoever asks
            self._content.set_exception(error)
