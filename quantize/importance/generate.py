"""Text that the model itself writes: the calibration and evaluation data that nobody has to ship or fetch.

Knows prompts, sampling and slots; the figures behind it are in docs/quantization.md. Invariant: the same model, seed
and engine give the same tokens.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field

import numpy as np

from quantize.progress import Progress, ProgressCallback
from quantize.runtime import LoadedModel, Logits, Session, Tokens, library

PROMPTS = (
    "Explain why the sky is blue to a child.",
    "Write a Python function that merges two sorted lists, with a docstring.",
    "What should I consider before I buy a used car?",
    "Schreibe eine kurze Geschichte über einen Leuchtturmwärter.",
    "Summarize how a bill becomes a law.",
    "Give me a recipe for lentil soup as a numbered list.",
    "¿Qué diferencias hay entre una pila y una cola?",
    "Write a polite email that moves a meeting to Thursday.",
    "A train leaves at 9:40 and arrives at 13:05. How long does it travel? Think step by step.",
    "Explique la photosynthèse en quelques phrases.",
    "List five ideas for a rainy afternoon, as JSON.",
    "Translate to French: 'The library closes at eight tonight.'",
    "What causes tides, and why are there two a day?",
    "Write an SQL query that finds customers without orders.",
    "请用三句话介绍一下长城。",
    "Compare hash maps and balanced trees in a small table.",
    "Tell me a joke, then explain it.",
    "Describe a walk through a market in the morning.",
    "How do I undo my last commit in git but keep the changes?",
    "Write the opening paragraph of a detective novel.",
)
"""Kinds of questions people ask; every second one is kept for evaluation."""

_TOP_K = 64
_SLOTS = 16
"""Sequences at once: decoding is bound by memory, so more of them cost little."""


@dataclass(slots=True)
class _Slot:
    """One sequence being written."""

    tokens: list[int] = field(default_factory=list)
    """Prompt and answer."""
    position: int = 0
    """Tokens that the engine has seen."""


def generate(
    model: LoadedModel,
    n_tokens: int,
    *,
    held_out: bool,
    threads: int,
    max_length: int = 512,
    progress: ProgressCallback | None = None,
) -> Tokens:
    """About `n_tokens` token ids of prompts and the model's answers, one after another.

    Args:
        held_out: the prompts and seed for evaluation instead of those for calibration.
    """
    writer = _Writer(model, held_out, max_length)
    started = time.monotonic()
    stage = "evaluation text" if held_out else "calibration text"
    with model.open(n_ctx=max_length, n_seq=_SLOTS, threads=threads) as session:
        while writer.n_written < n_tokens:
            writer.step(session)
            done = min(writer.n_written, n_tokens)
            if progress is not None and (writer.steps % 16 == 0 or done == n_tokens):
                progress(Progress(stage, "written by the model", done, n_tokens, time.monotonic() - started))
    return writer.all_tokens()[:n_tokens]


class _Writer:
    """Sequences that are continued together; a finished one gives its place to the next prompt."""

    def __init__(self, model: LoadedModel, held_out: bool, max_length: int) -> None:
        self._model = model
        self._prompts = PROMPTS[int(held_out) :: 2]
        self._random = np.random.default_rng(1 if held_out else 0)
        self._max_length = max_length
        self._started = 0
        self._finished: list[list[int]] = []
        self._slots: list[_Slot | None] = [None] * _SLOTS
        self.steps = 0

    @property
    def n_written(self) -> int:
        return sum(map(len, self._finished)) + sum(len(slot.tokens) for slot in self._slots if slot)

    def all_tokens(self) -> Tokens:
        texts = [*self._finished, *(slot.tokens for slot in self._slots if slot)]
        return np.array([token for text in texts for token in text], np.int32)

    def step(self, session: Session) -> None:
        """Continue every sequence by one token."""
        self.steps += 1
        for index in range(_SLOTS):
            if self._slots[index] is None:
                self._start(session, index)
        running = [(index, slot) for index, slot in enumerate(self._slots) if slot is not None]
        last = np.array([slot.tokens[-1] for _, slot in running], np.int32)
        logits = session.decode_step(last, [slot.position for _, slot in running], [index for index, _ in running])
        for row, (index, slot) in enumerate(running):
            slot.position += 1
            token = self._sample(logits, row, index)
            if not self._model.is_end(token):
                slot.tokens.append(token)
            if self._model.is_end(token) or len(slot.tokens) >= self._max_length - 1:
                self._finished.append(slot.tokens)
                self._slots[index] = None

    def _start(self, session: Session, index: int) -> None:
        prompt = self._prompts[self._started % len(self._prompts)]
        self._started += 1
        tokens = prompt_tokens(self._model, prompt)[: self._max_length // 2]
        session.forget(index)
        if len(tokens) > 1:
            session.decode(tokens[:-1], position=0, sequence=index, logits_from=len(tokens))
        self._slots[index] = _Slot(tokens.tolist(), len(tokens) - 1)

    def _sample(self, logits: Logits, row: int, index: int) -> int:
        temperature = 0.7 if index % 2 else 1.0
        values = logits[row]
        k = min(_TOP_K, values.size)
        best = np.argpartition(values, -k)[-k:]
        scaled = (values[best].astype(np.float64) - values[best].max()) / temperature
        chances = np.exp(scaled)
        return int(best[self._random.choice(k, p=chances / chances.sum())])


def prompt_tokens(model: LoadedModel, prompt: str) -> Tokens:
    """The prompt in the model's chat form where it has one the engine knows, else the plain text."""
    rendered = _render(model.chat_template, prompt)
    if rendered is None:
        tokens = model.tokenize(prompt + "\n", add_bos=True)
    else:
        tokens = model.tokenize(rendered, special=True)
        if model.bos is not None and (not len(tokens) or tokens[0] != model.bos):
            tokens = np.concatenate([np.array([model.bos], np.int32), tokens])
    return tokens if len(tokens) else np.array([0], np.int32)


def _render(template: bytes | None, prompt: str) -> str | None:
    if template is None:
        return None
    api = library().api
    message = (api.llama_chat_message * 1)(api.llama_chat_message(role=b"user", content=prompt.encode()))
    buffer = ctypes.create_string_buffer(4 * len(prompt.encode()) + 4096)
    n = api.llama_chat_apply_template(template, message, 1, True, buffer, len(buffer))
    return buffer.raw[:n].decode("utf-8", "replace") if 0 < n <= len(buffer) else None
