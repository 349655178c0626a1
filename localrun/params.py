"""What a caller may ask of the engine: frozen, validated values.

Knows ranges and defaults; knows neither the command line nor the engine. Invariant: an instance that exists is valid,
so nothing out of range or NaN can reach the C library. Every range error names the value and the range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, get_args

from localrun.errors import UsageError
from localrun.kinds import check_kinds, shown
from localrun.spread import Spread

KVType = Literal["f16", "q8_0", "q4_0"]
ConstraintKind = Literal["json_schema", "gbnf", "regex", "choice"]

_SMALLEST_CTX = 8
"""Fewer tokens hold no prompt and answer, and leave nothing to shift."""

SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc", "temperature")
"""Names of the samplers of the chain in their default order (the order of llama.cpp's `common_params_sampling`)."""


def _check(name: str, value: float, low: float, high: float, *, low_open: bool = False) -> None:
    too_low = value <= low if low_open else value < low
    if (isinstance(value, float) and math.isnan(value)) or too_low or value > high:
        left = "(" if low_open else "["
        right = f"{_bound(high)}]" if math.isfinite(high) else "inf)"
        raise UsageError(f"{name} is {shown(value)}, outside {left}{_bound(low)}, {right}")


def _bound(value: float) -> str:
    """A limit in full: nobody should have to read 4.29497e+09."""
    return f"{value:.0f}" if abs(value) >= 1e6 else f"{value:g}"


def _check_finite(name: str, value: float, low: float, high: float, *, low_open: bool = False) -> None:
    if isinstance(value, float) and math.isinf(value):
        raise UsageError(f"{name} is {value}, which is not a finite number")
    _check(name, value, low, high, low_open=low_open)


class OverflowPolicy(StrEnum):
    """What to do when prompt and answer do not fit in the context."""

    ERROR = "error"
    """Refuse a prompt that is too long; stop the answer at the end of the context."""
    SHIFT = "shift"
    """Keep the first tokens, drop the oldest after them, go on."""
    TRUNCATE_MIDDLE = "truncate-middle"
    """Cut the middle out of a prompt that is too long."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen. Defaults are llama.cpp's."""

    temperature: float = 0.8
    """0 is greedy: the most likely token, whatever the seed."""
    top_k: int = 40
    """Keep the k most likely tokens; 0 or less keeps all."""
    top_p: float = 0.95
    """Keep the smallest set with this probability; 1 keeps all, 0 keeps one token."""
    min_p: float = 0.05
    """Drop tokens less likely than this share of the most likely one; 0 keeps all."""
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    """Keep tokens within n standard deviations of the best logit; 0 or less is off."""
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    repeat_penalty: float = 1.0
    """Divides positive logits of repeated tokens; 1 is off."""
    repeat_last_n: int = 64
    """How far back the penalties look; 0 is off, -1 is the whole context."""
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    mirostat: int = 0
    """0 off, 1 Mirostat, 2 Mirostat 2.0 (which replace top-k, top-p, min-p and typical-p)."""
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, bias) pairs; `-inf` bans the token. Ids are checked against the vocabulary when a model is known."""
    seed: int | None = None
    """None draws a seed, which the result reports."""
    order: tuple[str, ...] = SAMPLERS

    def __post_init__(self) -> None:
        check_kinds(self)
        _check_finite("temperature", self.temperature, 0, 100)
        _check("top-k", self.top_k, -1, 2**31 - 1)
        _check_finite("top-p", self.top_p, 0, 1)
        _check_finite("min-p", self.min_p, 0, 1)
        _check_finite("typical-p", self.typical_p, 0, 1, low_open=True)
        _check_finite("top-n-sigma", self.top_n_sigma, -1, 1000)
        _check_finite("xtc probability", self.xtc_probability, 0, 1)
        _check_finite("xtc threshold", self.xtc_threshold, 0, 1)
        _check_finite("dry multiplier", self.dry_multiplier, 0, 1000)
        _check_finite("dry base", self.dry_base, 1, 1000)
        _check("dry allowed length", self.dry_allowed_length, 0, 2**31 - 1)
        _check("dry last-n", self.dry_penalty_last_n, -1, 2**31 - 1)
        _check_finite("repeat-penalty", self.repeat_penalty, 0, 100, low_open=True)
        _check("repeat-last-n", self.repeat_last_n, -1, 2**31 - 1)
        _check_finite("frequency-penalty", self.frequency_penalty, -100, 100)
        _check_finite("presence-penalty", self.presence_penalty, -100, 100)
        if self.mirostat not in (0, 1, 2):
            raise UsageError(f"mirostat is {shown(self.mirostat)}; it is 0 (off), 1 or 2")
        _check_finite("mirostat tau", self.mirostat_tau, 0, 100)
        _check_finite("mirostat eta", self.mirostat_eta, 0, 10)
        for token, bias in self.logit_bias:
            if token < 0:
                raise UsageError(f"logit-bias names the token id {shown(token)}, which is negative")
            if math.isnan(bias) or bias == math.inf:
                raise UsageError(f"logit-bias for token {shown(token)} is {bias}; it is a number or -inf")
        if self.seed is not None:
            _check("seed", self.seed, 0, 2**32 - 2)
        unknown = [name for name in self.order if name not in SAMPLERS]
        if unknown:
            raise UsageError(f"sampler-order names {unknown[0]!r}", hint=f"the samplers are {', '.join(SAMPLERS)}")
        if len(set(self.order)) != len(self.order):
            raise UsageError("sampler-order names a sampler twice")

    @property
    def uses_history(self) -> bool:
        """Whether earlier tokens change what is chosen (penalties, DRY)."""
        penalties = self.repeat_penalty != 1 or self.frequency_penalty != 0 or self.presence_penalty != 0
        return (penalties and self.repeat_last_n != 0) or self.dry_multiplier > 0


@dataclass(frozen=True, slots=True)
class ConstraintSpec:
    """What the output must match, before it is compiled.

    `source` is the text of a JSON Schema, of a GBNF grammar or of a regex; for `choice`, the strings.
    `name` is where it came from, for messages (a file name, or `--schema`).
    """

    kind: ConstraintKind
    source: str | tuple[str, ...]
    name: str = ""
    lenient: bool = False
    """JSON Schema only: what cannot be enforced is checked at the end instead of refused."""
    pretty: bool = False
    """JSON Schema only: indented instead of compact."""
    close: bool = True
    """JSON Schema only: spend the last tokens of the budget on closing the value."""
    special: bool = False
    """Choice only: special tokens written in the strings are meant, where the vocabulary has them."""
    followers: tuple[str, ...] = ()
    """JSON Schema only: texts like those, of which one follows the value and shows its end."""

    @property
    def names_special(self) -> bool:
        """Special tokens may be a part of the output."""
        return self.special or bool(self.followers)

    def __post_init__(self) -> None:
        check_kinds(self)
        if self.kind not in get_args(ConstraintKind):
            raise UsageError(f"unknown kind of constraint {self.kind!r}")
        if (self.kind == "choice") != isinstance(self.source, tuple):
            raise UsageError("a choice takes a tuple of strings, every other constraint takes one text")
        if self.kind == "choice" and not self.source:
            raise UsageError("a choice needs at least one string")


@dataclass(frozen=True, slots=True)
class GenerationParams:
    """One request: how long, how sampled, how constrained."""

    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int | None = None
    """None: until the model ends or the context is full."""
    stop: tuple[str, ...] = ()
    """Strings that end the answer; they add to the model's own end-of-generation tokens."""
    ignore_eos: bool = False
    """Ban every end-of-generation token."""
    timeout_s: float | None = None
    on_overflow: OverflowPolicy = OverflowPolicy.ERROR
    think: bool | None = None
    """True or False is passed to the template; None leaves the template's own default."""
    think_budget: int | None = None
    """At most so many tokens of reasoning; then it is closed by force."""
    constraint: ConstraintSpec | None = None
    priority: int = 0
    """Higher goes first when sequences wait for room."""
    logprobs: int | None = None
    """Tell of each token how likely it was, and of so many of the most likely ones; None tells nothing."""

    def __post_init__(self) -> None:
        check_kinds(self)
        if self.logprobs is not None:
            _check("logprobs", self.logprobs, 0, 100)
        if self.max_tokens is not None and self.max_tokens < 0:
            raise UsageError(
                f"max-tokens is {shown(self.max_tokens)}", hint="leave it out to generate until the model ends"
            )
        if self.max_tokens is not None:
            _check("max-tokens", self.max_tokens, 0, 2**31 - 1)
        _check("priority", self.priority, -(2**31), 2**31 - 1)
        if any(s == "" for s in self.stop):
            raise UsageError("a stop string is empty")
        if self.timeout_s is not None:
            _check_finite("timeout", self.timeout_s, 0, 1e9, low_open=True)
        if self.think_budget is not None and self.think_budget < 0:
            raise UsageError(f"think-budget is {shown(self.think_budget)}, below 0")
        if self.think_budget is not None:
            _check("think-budget", self.think_budget, 0, 2**31 - 1)


@dataclass(frozen=True, slots=True)
class EngineParams:
    """How a model is loaded. What is None is chosen from the model and the machine."""

    n_ctx: int | None = None
    """Context per sequence in tokens; None: the trained length, capped to what is sensible."""
    n_parallel: int = 1
    """How many sequences may be decoded at once."""
    n_batch: int = 2048
    n_ubatch: int = 512
    threads: int | None = None
    """None: follow the load of the machine."""
    gpu_layers: int | None = None
    """None: as many as fit; 0: none."""
    spread: Spread = field(default_factory=Spread)
    """How the model lies over several GPUs, RAM and RPC servers."""
    kv_type: KVType = "f16"
    flash_attention: bool | None = None
    use_mmap: bool = True
    draft: str | None = None
    """Guess tokens and verify several at once: `ngram` (from the text itself), or a smaller model; None: never."""
    cache: bool = True
    """Reuse prefixes from the disk cache, and write them."""

    def __post_init__(self) -> None:
        check_kinds(self)
        if self.n_ctx is not None:
            _check("ctx", self.n_ctx, _SMALLEST_CTX, 2**31 - 1)
        _check("parallel", self.n_parallel, 1, 256)
        _check("batch", self.n_batch, 1, 2**20)
        _check("ubatch", self.n_ubatch, 1, 2**20)
        if self.threads is not None:
            _check("threads", self.threads, 1, 1024)
        if self.gpu_layers is not None:
            _check("gpu-layers", self.gpu_layers, 0, 100_000)
        if self.kv_type not in get_args(KVType):
            raise UsageError(f"kv-type is {self.kv_type!r}", hint="one of f16, q8_0, q4_0")
        if self.spread.split_mode == "tensor" and self.flash_attention is False:
            raise UsageError("split-mode tensor needs flash attention", hint="leave out --no-flash-attention")
