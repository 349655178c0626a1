"""A smaller model that guesses for a larger one.

Knows the catalogue and the llama layer; knows no policy. Invariant: both models have the same vocabulary, token for
token, or the draft is refused before anything is generated.
"""

from __future__ import annotations

from contextlib import ExitStack

from localrun.engine.speculative import ModelDrafter
from localrun.errors import UsageError
from localrun.gguf import read_header
from localrun.hardware.cpu import physical_cores
from localrun.llama.context import ContextOptions, LlamaContext
from localrun.llama.devices import RPC, gpu_devices
from localrun.llama.model import ALL_LAYERS, LlamaModel
from localrun.params import EngineParams
from localrun.spread import Spread

_FIRST_CELLS = 1024


class DraftModel:
    """A draft model in memory, and the drafter that uses it. Close it after the engine has ended."""

    def __init__(self, name: str, target: LlamaModel, params: EngineParams, n_ctx: int) -> None:
        """Raises `ModelNotFoundError` for an unknown draft (it is not fetched), `UsageError` for another vocabulary."""
        from localrun.catalog.resolve import require

        file = require(name)
        read_header(file.path)
        self._stack = ExitStack()
        try:
            layers, spread = _place(params)
            model = LlamaModel.load(file.path, gpu_layers=layers, spread=spread)
            self._stack.callback(model.close)
            _same_vocabulary(target, model, name)
            n_cells = n_ctx * params.n_parallel
            threads = params.threads or physical_cores()
            context = LlamaContext(
                model,
                ContextOptions(
                    n_ctx_seq=n_ctx,
                    n_cells=n_cells,
                    n_cells_start=min(n_cells, _FIRST_CELLS),
                    n_seq_max=params.n_parallel,
                    n_batch=params.n_ubatch,
                    n_ubatch=params.n_ubatch,
                    threads=threads,
                    threads_prefill=threads,
                    flash_attention=params.flash_attention or False,
                ),
            )
            self._stack.callback(context.close)
            self.drafter = ModelDrafter(context)
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        """Free the draft model. Idempotent."""
        self._stack.close()


def _place(params: EngineParams) -> tuple[int, Spread]:
    """One GPU of this machine, or the CPU: a draft is small, and a token's way to another machine is long."""
    devices = gpu_devices() if params.gpu_layers != 0 else []
    local = next((number for number, device in enumerate(devices) if device.backend != RPC), None)
    if local is None:
        return 0, Spread()
    return ALL_LAYERS, Spread(split_mode="none", main_gpu=local)


def _same_vocabulary(target: LlamaModel, draft: LlamaModel, name: str) -> None:
    ours, theirs = target.vocabulary, draft.vocabulary
    if ours.n_tokens != theirs.n_tokens or ours.pieces() != theirs.pieces():
        raise UsageError(
            f"{name} cannot draft for this model: its vocabulary is another one",
            hint="a draft is a smaller model of the same family; --draft ngram needs none",
        )
