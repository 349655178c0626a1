"""Decoding and the KV memory of a loaded model: the engine's `Backend`.

Knows llama.cpp's context; knows no sequence's meaning. Invariants: arguments are in range before C sees them, every
return code is told apart, and the abort flag is read by C without the interpreter.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from localrun.engine.ports import Decoded, MemoryKind, Span
from localrun.errors import DoesNotFitError, EngineError
from localrun.llama.batch import Batch
from localrun.llama.blocks import restore_blocks, save_blocks
from localrun.llama.library import bindings, engine_log, listen
from localrun.llama.model import LlamaModel
from localrun.llama.openmp import end_team
from localrun.llama.sampler import SamplerChain
from localrun.llama.state import restore_sequence, save_sequence
from localrun.llama.vocabulary import Vocabulary
from localrun.params import KVType, SamplingParams

if TYPE_CHECKING:
    from localrun.engine.ports import Block, Logits

MAX_SEQUENCES = 256
"""llama.cpp's `LLAMA_MAX_SEQ`."""

_KV_TYPES = {"f16": 1, "q8_0": 8, "q4_0": 2}  # ggml_type
_FLASH = {None: -1, False: 0, True: 1}  # llama_flash_attn_type


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """How a context is made. Cells are shared by all sequences."""

    n_ctx_seq: int
    """The most tokens of one sequence."""
    n_cells: int
    """The most cells; memory is taken for `n_cells_start`, and more when it is needed."""
    n_cells_start: int
    n_seq_max: int
    n_batch: int
    n_ubatch: int
    threads: int
    threads_prefill: int
    n_outputs_max: int = 32
    """The most rows of one decode that give logits."""
    kv_type: KVType = "f16"
    flash_attention: bool | None = None


def least_tail(*, flash: bool | None, kv_type: KVType) -> int:
    """The least rows of a prompt's last piece that kernels take as they take more.

    Flash attention takes rows in tiles of 64 where there are so many (`GGML_FA_TILE_Q`), but not with a quantized
    cache; the tiled K-quant kernels begin at 8 (`ggml_tiled_min_batch`).
    """
    return 64 if flash is not False and kv_type == "f16" else 8


class LlamaContext:
    """A context of a model. Close it before the model."""

    def __init__(self, model: LlamaModel, options: ContextOptions) -> None:
        lib = bindings()
        self.model = model
        self.options = options
        self._lib = lib
        self._stack = ExitStack()
        self._samplers: set[SamplerChain] = set()
        self._abort_flag = ctypes.create_string_buffer(2)
        self._batch = Batch(lib, options.n_batch, options.n_seq_max)
        self._rows = 0
        self._n_vocab = model.vocabulary.n_tokens
        self._threads = (options.threads, options.threads_prefill)
        self._open(min(options.n_cells_start, options.n_cells))

    def _open(self, n_cells: int) -> None:
        """Make the C context with room for `n_cells`."""
        lib, options = self._lib, self.options
        params = lib.llama_context_default_params()
        params.n_ctx = n_cells
        params.n_batch = options.n_batch
        params.n_ubatch = min(options.n_ubatch, options.n_batch)
        params.n_seq_max = options.n_seq_max
        # The engine makes room for a row of each sequence, and asserts that this is not more.
        params.n_outputs_max = max(options.n_seq_max, min(options.n_batch, options.n_outputs_max))
        params.n_threads, params.n_threads_batch = self._threads
        params.type_k = params.type_v = _KV_TYPES[options.kv_type]
        params.flash_attn_type = _FLASH[options.flash_attention]
        if options.kv_type != "f16":
            params.flash_attn_type = _FLASH[True]  # a quantized V cache exists only with flash attention
        params.kv_unified = True
        params.swa_full = False
        params.no_perf = True
        listen()
        handle = lib.llama_init_from_model(self.model.handle, params)
        if handle:
            self.handle = handle
            self._stack.callback(lib.llama_free, handle)
            self._memory = lib.llama_get_memory(handle)
            self._install_abort()
            return
        lines = list(engine_log().errors)
        reason = lines[0] if lines else "the engine gave no reason"
        raise DoesNotFitError(
            f"a context of {n_cells:,} tokens could not be made: {reason}",
            hint="take a smaller --ctx or --parallel, or --kv-type q8_0",
        )

    def _install_abort(self) -> None:
        # The callback is asked once per graph node, hundreds of times a token. A Python function there would cost
        # milliseconds; `strlen` of our flag is a C function of the right shape: 0 for an empty string, 1 for "\x01".
        strlen = ctypes.CDLL(None).strlen
        address = ctypes.cast(strlen, ctypes.c_void_p).value
        callback = self._lib.ggml_abort_callback(address)
        self._lib.llama_set_abort_callback(self.handle, callback, ctypes.addressof(self._abort_flag))
        self._abort_callback = callback

    def _grow(self) -> bool:
        """Take memory for more cells and move everything there; False at the limit.

        Doubles, so that moving costs little over a sequence's life. The whole state is saved and restored, which
        keeps cells shared between sequences shared.
        """
        lib, n_cells = self._lib, self.n_cells_taken
        if n_cells >= self.options.n_cells:
            return False
        size = lib.llama_state_get_size(self.handle)
        state = (ctypes.c_uint8 * size)()
        written = lib.llama_state_get_data(self.handle, state, size)
        self._stack.close()
        try:
            self._open(min(2 * n_cells, self.options.n_cells))
        except DoesNotFitError:
            self._open(n_cells)
            lib.llama_state_set_data(self.handle, state, written)
            raise
        if lib.llama_state_set_data(self.handle, state, written) == 0:
            raise EngineError(f"the engine could not move its state of {written:,} bytes to a larger context")
        return True

    def close(self) -> None:
        """Free the context and its samplers. May be called again."""
        for sampler in list(self._samplers):
            sampler.close()
        self._stack.close()

    # what it is ---------------------------------------------------------------------------------------------------

    @property
    def table(self) -> Vocabulary:
        return self.model.vocabulary

    @property
    def n_ctx_seq(self) -> int:
        return self.options.n_ctx_seq

    @property
    def n_cells(self) -> int:
        return self.options.n_cells

    @property
    def n_cells_taken(self) -> int:
        """Cells that have memory now."""
        return int(self._lib.llama_n_ctx(self.handle))

    @property
    def n_batch(self) -> int:
        # A context smaller than a batch takes smaller batches only (and asserts otherwise).
        return min(self.options.n_batch, int(self._lib.llama_n_batch(self.handle)))

    @property
    def n_tail(self) -> int:
        return least_tail(flash=self.options.flash_attention, kv_type=self.options.kv_type)

    @property
    def n_seq_max(self) -> int:
        return self.options.n_seq_max

    @property
    def memory_kind(self) -> MemoryKind:
        if self.model.keeps_state:
            return "state"
        return "window" if self.model.n_swa else "full"

    @property
    def n_window(self) -> int:
        return self.model.n_swa

    @property
    def can_shift(self) -> bool:
        return bool(self._lib.llama_memory_can_shift(self._memory))

    # decoding -----------------------------------------------------------------------------------------------------

    def decode(self, spans: Sequence[Span]) -> Decoded:
        """Compute `spans`. Source of the return codes: `llama_decode`."""
        self._rows = self._batch.fill(spans)
        code = self._lib.llama_decode(self.handle, self._batch.struct)
        while code == 1 and self._grow():
            code = self._lib.llama_decode(self.handle, self._batch.struct)
        if code == 0:
            return Decoded.OK
        if code == 1:
            return Decoded.NO_ROOM
        if code == 2:
            return Decoded.ABORTED
        lines = list(engine_log().errors)
        reason = f": {lines[-1]}" if lines else ""
        if code == -1:
            raise EngineError(f"the engine refused a batch of {self._rows} rows{reason}")
        raise EngineError(f"the engine failed while decoding (code {code}){reason}")

    def logits(self, row: int) -> Logits:
        import numpy as np

        pointer = self._lib.llama_get_logits_ith(self.handle, self._checked_row(row))
        if not pointer:
            raise EngineError(f"row {row} of the batch has no logits")
        return np.ctypeslib.as_array(pointer, shape=(self._n_vocab,))

    def sampler(self, params: SamplingParams, seed: int, banned: Sequence[int]) -> SamplerChain:
        chain = SamplerChain(self, params, seed, banned)
        self._samplers.add(chain)
        return chain

    def forget_sampler(self, chain: SamplerChain) -> None:
        """Called by a sampler that was closed."""
        self._samplers.discard(chain)

    def row_pointer(self, row: int) -> Any:
        """The C pointer to a row's logits, for samplers."""
        return self._lib.llama_get_logits_ith(self.handle, self._checked_row(row))

    def _checked_row(self, row: int) -> int:
        assert 0 <= row < self._rows, "a row of the last decode"
        return row

    # memory -------------------------------------------------------------------------------------------------------

    def copy(self, source: int, target: int, start: int, stop: int) -> None:
        self._lib.llama_memory_seq_cp(self._memory, self._seq(source), self._seq(target), start, stop)

    def remove(self, seq: int, start: int, stop: int) -> bool:
        return bool(self._lib.llama_memory_seq_rm(self._memory, self._seq(seq), start, stop))

    def shift(self, seq: int, start: int, stop: int, delta: int) -> None:
        self._lib.llama_memory_seq_add(self._memory, self._seq(seq), start, stop, delta)

    def first_position(self, seq: int) -> int:
        return int(self._lib.llama_memory_seq_pos_min(self._memory, self._seq(seq)))

    def last_position(self, seq: int) -> int:
        return int(self._lib.llama_memory_seq_pos_max(self._memory, self._seq(seq)))

    def _seq(self, seq: int) -> int:
        assert 0 <= seq < self.options.n_seq_max, "a sequence id of this context"
        return seq

    # blocks of the memory ----------------------------------------------------------------------------------------

    def save_blocks(self, seq: int, start: int, stop: int, block: int) -> list[Block]:
        return save_blocks(self, self._seq(seq), start, stop, block)

    def restore_blocks(self, seq: int, start: int, blocks: Iterable[Block], stop: int | None = None) -> int:
        return restore_blocks(self, self._seq(seq), start, blocks, stop)

    def save_state(self, seq: int) -> Block:
        return save_sequence(self._lib, self.handle, self._seq(seq))

    def restore_state(self, seq: int, state: Block) -> bool:
        while not restore_sequence(self._lib, self.handle, self._seq(seq), state):
            if not self._grow():
                return False
        return True

    # threads and abort --------------------------------------------------------------------------------------------

    def set_threads(self, decode: int, prefill: int) -> None:
        self._threads = (decode, prefill)
        self._lib.llama_set_n_threads(self.handle, decode, prefill)

    def abort(self) -> None:
        self._abort_flag[0] = b"\x01"

    def clear_abort(self) -> None:
        self._abort_flag[0] = b"\x00"

    def rest(self) -> None:
        end_team(self._lib._lib)
