"""The C sampler chain of one sequence.

Knows how `SamplingParams` become llama.cpp samplers; knows no text. Invariants: no sampler is ever NULL in a chain,
the chain is freed once, and a token is only returned from finite logits.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from localrun.errors import EngineError, NonFiniteLogitsError, UsageError
from localrun.llama.library import bindings
from localrun.params import SamplingParams

if TYPE_CHECKING:
    from localrun.llama.context import LlamaContext

# llama.cpp's defaults (`common_params_sampling.dry_sequence_breakers`).
_DRY_BREAKERS = (b"\n", b":", b'"', b"*")
_REPLACED_BY_MIROSTAT = frozenset({"top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc", "temperature"})


class SamplerChain:
    """Chooses tokens as `params` say; the same seed and logits give the same tokens."""

    def __init__(self, context: LlamaContext, params: SamplingParams, seed: int, banned: Sequence[int]) -> None:
        self._lib = bindings()
        self._context = context
        self._params = params
        self._seed = seed
        self._n_vocab = context.model.vocabulary.n_tokens
        self._vocabulary = context.model.vocabulary.handle
        self._banned: set[int] = set()
        self._unseen = True
        chain = self._lib.llama_sampler_chain_init(self._lib.llama_sampler_chain_default_params())
        self._chain: Any = self._required(chain, "chain")
        try:
            for sampler in self._build(banned):
                self._lib.llama_sampler_chain_add(self._chain, sampler)
        except BaseException:
            self.close()
            raise

    def sample(self, row: int) -> int:
        """Choose and accept a token from row `row` of the last decode. Source: `llama_sampler_sample`."""
        pointer = self._context.row_pointer(row)
        if not pointer:
            raise EngineError(f"row {row} of the batch has no logits")
        if math.isnan(pointer[0]) or (self._unseen and self._poisoned(pointer)):
            raise NonFiniteLogitsError(_NON_FINITE)
        token = int(self._lib.llama_sampler_sample(self._chain, self._context.handle, row))
        if 0 <= token < self._n_vocab and pointer[token] == -math.inf:
            raise EngineError(
                "no token is left to choose: all that the constraint allows are banned",
                hint="--logit-bias and --ignore-eos ban tokens",
            )
        if not 0 <= token < self._n_vocab or not math.isfinite(pointer[token]):
            raise NonFiniteLogitsError(_NON_FINITE)
        if token in self._banned:
            raise EngineError(
                "no token is left to choose: every candidate is banned", hint="allow some --logit-bias bans"
            )
        return token

    def _poisoned(self, pointer: Any) -> bool:
        """Look at every logit, once for each sequence (0.5 ms for 49k of them); later tokens get a cheaper look.

        -inf is a value: models and constraints ban tokens with it.
        """
        self._unseen = False
        values = (ctypes.c_float * self._n_vocab).from_address(ctypes.addressof(pointer.contents))
        total = sum(memoryview(values).cast("B").cast("f"))
        return math.isnan(total) or total == math.inf

    def accept(self, token: int) -> None:
        self._lib.llama_sampler_accept(self._chain, token)

    def close(self) -> None:
        if self._chain:
            self._lib.llama_sampler_free(self._chain)
            self._chain = None
            self._context.forget_sampler(self)

    def _build(self, banned: Sequence[int]) -> list[Any]:
        lib, params = self._lib, self._params
        samplers = []
        biases = [*params.logit_bias, *((token, -math.inf) for token in banned)]
        self._banned = {token for token, bias in biases if bias == -math.inf}
        if biases:
            samplers.append(self._logit_bias(biases))
        makers = {
            "penalties": self._penalties,
            "dry": self._dry,
            "top_n_sigma": lambda: lib.llama_sampler_init_top_n_sigma(params.top_n_sigma),
            "top_k": lambda: lib.llama_sampler_init_top_k(params.top_k),
            "typical_p": lambda: lib.llama_sampler_init_typical(params.typical_p, 1),
            "top_p": lambda: lib.llama_sampler_init_top_p(params.top_p, 1),
            "min_p": lambda: lib.llama_sampler_init_min_p(params.min_p, 1),
            "xtc": lambda: lib.llama_sampler_init_xtc(params.xtc_probability, params.xtc_threshold, 1, self._seed),
            "temperature": lambda: lib.llama_sampler_init_temp(params.temperature),
        }
        greedy = params.temperature == 0
        for name in params.order:
            skipped = name in _REPLACED_BY_MIROSTAT and (greedy or params.mirostat)
            if self._active(name) and not skipped:
                samplers.append(self._required(makers[name](), name))
        samplers.extend(self._required(sampler, "last") for sampler in self._last(greedy))
        return samplers

    def _last(self, greedy: bool) -> list[Any]:
        lib, params = self._lib, self._params
        if greedy:
            return [lib.llama_sampler_init_greedy()]
        temperature = lib.llama_sampler_init_temp(params.temperature)
        if params.mirostat == 1:
            # 100 candidates for the estimate of the exponent, as llama.cpp's own tools take.
            tau, eta = params.mirostat_tau, params.mirostat_eta
            return [temperature, lib.llama_sampler_init_mirostat(self._n_vocab, self._seed, tau, eta, 100)]
        if params.mirostat == 2:
            return [
                temperature,
                lib.llama_sampler_init_mirostat_v2(self._seed, params.mirostat_tau, params.mirostat_eta),
            ]
        lib.llama_sampler_free(temperature)
        return [lib.llama_sampler_init_dist(self._seed)]

    def _active(self, name: str) -> bool:
        """Whether a sampler would do anything: one that would not is left out, since each walks the candidates."""
        params = self._params
        return {
            "penalties": params.repeat_last_n != 0
            and (params.repeat_penalty != 1 or params.frequency_penalty != 0 or params.presence_penalty != 0),
            "dry": params.dry_multiplier > 0 and params.dry_penalty_last_n != 0,
            "top_n_sigma": params.top_n_sigma > 0,
            "top_k": params.top_k > 0,
            "typical_p": params.typical_p < 1,
            "top_p": params.top_p < 1,
            "min_p": params.min_p > 0,
            "xtc": params.xtc_probability > 0,
            "temperature": True,
        }[name]

    def _penalties(self) -> Any:
        params = self._params
        last_n = params.repeat_last_n if params.repeat_last_n >= 0 else self._context.n_ctx_seq
        return self._lib.llama_sampler_init_penalties(
            self._n_vocab, last_n, params.repeat_penalty, params.frequency_penalty, params.presence_penalty
        )

    def _dry(self) -> Any:
        params = self._params
        last_n = params.dry_penalty_last_n if params.dry_penalty_last_n >= 0 else self._context.n_ctx_seq
        breakers = (ctypes.c_char_p * len(_DRY_BREAKERS))(*_DRY_BREAKERS)
        return self._lib.llama_sampler_init_dry(
            self._vocabulary,
            params.dry_multiplier,
            params.dry_base,
            params.dry_allowed_length,
            last_n,
            breakers,
            len(_DRY_BREAKERS),
        )

    def _logit_bias(self, biases: list[tuple[int, float]]) -> Any:
        for token, _ in biases:
            if not 0 <= token < self._n_vocab:
                raise UsageError(
                    f"logit-bias names the token id {token}, outside the vocabulary of {self._n_vocab:,} tokens",
                    hint="localrun tokenize shows token ids",
                )
        array = (self._lib.llama_logit_bias * len(biases))()
        for entry, (token, bias) in zip(array, biases, strict=True):
            entry.token, entry.bias = token, bias
        return self._required(self._lib.llama_sampler_init_logit_bias(self._n_vocab, len(biases), array), "logit-bias")

    @staticmethod
    def _required(sampler: Any, name: str) -> Any:
        if not sampler:
            raise EngineError(f"the engine could not make its {name} sampler")
        return sampler


_NON_FINITE = "the model produced values that are not finite (NaN or infinite)"
