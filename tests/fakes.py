"""A model of bytes that remembers exactly what was computed, for tests of the engine.

Its next token depends on every token before it, so any mistake with positions, slots or shared cells changes the text.
Tokens 0 to 255 are bytes; 256 ends a generation, 257 is BOS, 258 is a control token.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from localrun.engine.ports import Block, Decoded, MemoryKind, Span
from localrun.errors import EngineError, NonFiniteLogitsError
from localrun.params import SamplingParams

if TYPE_CHECKING:
    from localrun.engine.ports import Logits

EOG, BOS, CONTROL = 256, 257, 258
N_VOCAB = 259


class ByteTable:
    """The byte vocabulary."""

    n_tokens = N_VOCAB
    eog_ids = frozenset({EOG})

    def piece(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else {EOG: b"<eog>", BOS: b"<bos>", CONTROL: b"<control>"}[token]

    def pieces(self) -> list[bytes]:
        return [self.piece(token) for token in range(self.n_tokens)]

    def is_eog(self, token: int) -> bool:
        return token == EOG

    def is_control(self, token: int) -> bool:
        return token >= 256

    def encode(self, text: bytes, *, special: bool = False) -> list[int]:
        return list(text)


@dataclass(eq=False)
class _Cell:
    token: int
    pos: int
    seqs: set[int] = field(default_factory=set)
    alone: bool = False
    """Whether it was computed as one of the rows that fill no group, which may round differently."""


class FakeBackend:
    """A memory of cells, as llama.cpp keeps them: shared by sequences, moved for all of them at once."""

    def __init__(
        self,
        *,
        n_ctx_seq: int = 256,
        n_cells: int = 1024,
        n_batch: int = 64,
        n_seq_max: int = 12,
        memory_kind: MemoryKind = "full",
        n_window: int = 0,
        eog_rate: float = 0.0,
        n_tail: int = 8,
        rounds: bool = False,
    ) -> None:
        """With `rounds`, a row depends on its place in the batch, as in llama.cpp's kernels: fours and the rest."""
        self.table = ByteTable()
        self.n_ctx_seq, self.n_cells, self.n_batch, self.n_seq_max = n_ctx_seq, n_cells, n_batch, n_seq_max
        self.n_tail, self._rounds = n_tail, rounds
        self.memory_kind, self.n_window, self.can_shift = memory_kind, n_window, memory_kind == "full"
        self.cells: list[_Cell] = []
        self.decodes: list[list[Span]] = []
        self.samplers_open = 0
        self.abort_at_decode: int | None = None
        self.script: dict[bytes, bytes] = {}
        """Answers by the end of the prompt: what follows a prompt that ends so."""
        self._eog_rate = eog_rate
        self._rows: dict[int, Logits] = {}
        self._aborted = False
        self.rested_at: list[int] = []
        """How many decodes there had been, each time the worker had nothing to do."""

    def decode(self, spans: Sequence[Span]) -> Decoded:
        self.decodes.append(list(spans))
        self._rows = {}
        rows = sum(len(span.tokens) for span in spans)
        assert 0 < rows <= self.n_batch
        if self._aborted or self.abort_at_decode == len(self.decodes):
            return Decoded.ABORTED
        if len(self.cells) + rows > self.n_cells:
            return Decoded.NO_ROOM
        row = 0
        for span in spans:
            assert 0 <= span.seq < self.n_seq_max
            assert self.last_position(span.seq) == span.start - 1, "positions follow each other"
            for i, token in enumerate(span.tokens):
                alone = self._rounds and (rows < self.n_tail or row >= rows // 4 * 4)
                self.cells.append(_Cell(token, span.start + i, {span.seq}, alone))
                if span.logits == "all" or (span.logits == "last" and i == len(span.tokens) - 1):
                    self._rows[row] = self._predict(span.seq, span.start + i)
                row += 1
            if self.memory_kind == "window":
                self._forget_window(span.seq)
        return Decoded.OK

    def logits(self, row: int) -> Logits:
        return self._rows[row]

    def sampler(self, params: SamplingParams, seed: int, banned: Sequence[int]) -> FakeSampler:
        self.samplers_open += 1
        return FakeSampler(self, params, seed, banned)

    def copy(self, source: int, target: int, start: int, stop: int) -> None:
        for cell in self._of(source):
            if start <= cell.pos < stop:
                cell.seqs.add(target)

    def remove(self, seq: int, start: int, stop: int) -> bool:
        stop = stop if stop >= 0 else 1 << 30
        held = self._of(seq)
        if self.memory_kind == "state" and held and not start <= held[0].pos <= held[-1].pos < stop:
            return False
        for cell in held:
            if start <= cell.pos < stop:
                cell.seqs.discard(seq)
        self.cells = [cell for cell in self.cells if cell.seqs]
        return True

    def shift(self, seq: int, start: int, stop: int, delta: int) -> None:
        stop = stop if stop >= 0 else 1 << 30
        for cell in self._of(seq):
            if start <= cell.pos < stop:
                cell.pos += delta

    def first_position(self, seq: int) -> int:
        return min((cell.pos for cell in self._of(seq)), default=-1)

    def last_position(self, seq: int) -> int:
        return max((cell.pos for cell in self._of(seq)), default=-1)

    def save_blocks(self, seq: int, start: int, stop: int, block: int) -> list[Block]:
        held = {cell.pos: (cell.token, cell.alone) for cell in self._of(seq)}
        wanted = range(start, stop)
        return [
            json.dumps([[pos, *held[pos]] for pos in wanted[i : i + block] if pos in held]).encode()
            for i in range(0, stop - start, block)
        ]

    def restore_blocks(self, seq: int, start: int, blocks: Iterable[Block], stop: int | None = None) -> int:
        try:
            parsed = [json.loads(bytes(block)) for block in blocks]
        except ValueError as error:
            raise EngineError("these bytes are no blocks") from error
        assert self.last_position(seq) == start - 1
        width = len(parsed[0]) if parsed else 0
        while parsed and len(parsed[-1]) < width:
            parsed.pop()
        cells = [_Cell(token, pos, {seq}, alone) for block in parsed for pos, token, alone in block]
        if [cell.pos for cell in cells] != list(range(start, start + len(cells))):
            raise EngineError("these are blocks of other positions")
        cells = [cell for cell in cells if stop is None or cell.pos < stop]
        self.cells += cells
        return len(cells)

    def save_state(self, seq: int) -> Block:
        return json.dumps([[cell.pos, cell.token, cell.alone] for cell in self._of(seq)]).encode()

    def restore_state(self, seq: int, state: Block) -> bool:
        assert self.last_position(seq) == -1, "a state replaces nothing"
        self.cells += [_Cell(token, pos, {seq}, alone) for pos, token, alone in json.loads(bytes(state))]
        return True

    def set_threads(self, decode: int, prefill: int) -> None:
        self.threads = (decode, prefill)

    def abort(self) -> None:
        self._aborted = True

    def clear_abort(self) -> None:
        self._aborted = False

    def rest(self) -> None:
        self.rested_at.append(len(self.decodes))

    def text(self, seq: int) -> list[int]:
        """The tokens of a sequence, by position."""
        return [cell.token for cell in self._of(seq)]

    def _of(self, seq: int) -> list[_Cell]:
        return sorted((cell for cell in self.cells if seq in cell.seqs), key=lambda cell: cell.pos)

    def _forget_window(self, seq: int) -> None:
        # As llama.cpp does: a cell that is overwritten takes every earlier position of its sequence with it, so that
        # what a sequence has is always without gaps.
        last = self.last_position(seq)
        held = self._of(seq)
        lost = max((c.pos for c in held if c.pos <= last - self.n_window and c.seqs == {seq}), default=-1)
        for cell in held:
            if cell.pos <= lost:
                cell.seqs.discard(seq)
        self.cells = [cell for cell in self.cells if cell.seqs]

    def _predict(self, seq: int, pos: int) -> Logits:
        cells = [cell for cell in self._of(seq) if cell.pos <= pos]
        if self.memory_kind == "window":
            cells = [cell for cell in cells if cell.pos > pos - self.n_window]
            complete = len(cells) == min(pos + 1, self.n_window)
        else:
            complete = [cell.pos for cell in cells] == list(range(pos + 1))
        seen = b"".join((cell.token + (cell.alone << 12)).to_bytes(2, "little") for cell in cells)
        logits = np.full(N_VOCAB, -5.0, dtype=np.float32)
        scripted = self._scripted([cell.token for cell in cells])
        if scripted is not None:
            logits[scripted] = 10.0
            return logits
        # Incomplete memory gives another text: exactly the silent error that tests look for.
        rng = random.Random(zlib.crc32(seen) ^ (0 if complete else 0x5EED))
        for _ in range(8):
            logits[rng.randrange(32, 127)] = rng.uniform(0, 4)
        if rng.random() < self._eog_rate:
            logits[EOG] = 9.0
        return logits

    def _scripted(self, tokens: list[int]) -> int | None:
        text = bytes(token for token in tokens if token < 256)
        for prompt, answer in self.script.items():
            at = text.rfind(prompt)
            if at >= 0 and answer.startswith(said := text[at + len(prompt) :]):
                return answer[len(said)] if len(said) < len(answer) else EOG
        return None


class FakeSampler:
    """Greedy at temperature 0, else by the softmax and a seeded generator."""

    def __init__(self, backend: FakeBackend, params: SamplingParams, seed: int, banned: Sequence[int]) -> None:
        self._backend, self._params, self._banned = backend, params, list(banned)
        self._random = random.Random(seed)
        self.accepted: list[int] = []
        self._open = True

    def sample(self, row: int) -> int:
        logits = self._backend.logits(row).astype(np.float64)
        logits[self._banned] = -np.inf
        if np.isnan(logits).any() or not np.isfinite(logits).any():
            raise NonFiniteLogitsError("the model produced no finite values to choose a token from")
        if self._params.temperature == 0:
            token = int(np.argmax(logits))
        else:
            weights = np.exp((logits - logits.max()) / self._params.temperature)
            token = self._random.choices(range(len(weights)), weights.tolist())[0]
        self.accept(token)
        return token

    def accept(self, token: int) -> None:
        self.accepted.append(token)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._backend.samplers_open -= 1
