"""What each kind of server understands beyond the OpenAI API, and under which names.

Tables only: no connection, no request. Invariant: a dialect names a parameter only if that server acts on it, since
servers ignore what they do not know without a word.

Written from what is known of these servers' OpenAI-compatible endpoints; only those of llama-server, llama-cpp-python
and localrun have been checked against the servers themselves (`benchmarks/remote_engines.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ConstraintForm = Literal[
    "response_format",
    "json_object",
    "structured_outputs",
    "grammar",
    "ebnf",
    "regex",
    "choices",
    "guided_format",
    "guided_json",
]

_OPENAI = {
    "temperature": "temperature",
    "top_p": "top_p",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "seed": "seed",
    "logit_bias": "logit_bias",
}
_LLAMA = {
    **_OPENAI,
    "top_k": "top_k",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "repeat_penalty": "repeat_penalty",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
}
_LLAMA_CPP = {
    **_LLAMA,
    "top_n_sigma": "top_n_sigma",
    "repeat_last_n": "repeat_last_n",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "dry_multiplier": "dry_multiplier",
    "dry_base": "dry_base",
    "dry_allowed_length": "dry_allowed_length",
    "dry_penalty_last_n": "dry_penalty_last_n",
    "order": "samplers",
}
_VLLM = {**_OPENAI, "top_k": "top_k", "min_p": "min_p", "repeat_penalty": "repetition_penalty"}


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of server."""

    name: str
    title: str
    sampling: Mapping[str, str]
    """Fields of `SamplingParams` → keys of the request."""
    constraints: Mapping[str, ConstraintForm] = field(default_factory=lambda: {"json_schema": "response_format"})
    """Kinds of constraint → how the request says it. A kind that is absent cannot be enforced there."""
    think: Literal["template", "effort", "none"] = "none"
    """How thinking is switched: a variable of the chat template, `reasoning_effort`, or not at all."""
    think_budget: str | None = None
    ignore_eos: bool = False
    prefill: Literal["implicit", "continue_final_message", "none"] = "none"
    """How an answer that has been begun is continued."""
    echoes_prefill: bool = False
    """Its answer repeats the beginning that it was given."""
    raw: bool = True
    """Has `/completions`, which takes a prompt without a template."""
    raw_is_verbatim: bool = True
    """Special tokens written in a raw prompt are taken as such."""
    priority: int = 0
    """Its field `priority` puts higher (1) or lower (-1) values first; 0: it has none."""
    progress: str | None = None
    """The request's switch that makes the server tell how far a prompt is."""
    needs_stream_usage: bool = True


_GUIDED: Mapping[str, ConstraintForm] = {
    "json_schema": "response_format",
    "gbnf": "structured_outputs",
    "regex": "structured_outputs",
    "choice": "structured_outputs",
}

DIALECTS: dict[str, Dialect] = {
    d.name: d
    for d in (
        Dialect("openai", "an OpenAI-compatible server", _OPENAI),
        Dialect(
            "localrun",
            "localrun serve",
            _LLAMA_CPP,
            {"json_schema": "response_format", "gbnf": "grammar", "regex": "regex", "choice": "choices"},
            think="template",
            think_budget="thinking_budget_tokens",
            ignore_eos=True,
            prefill="continue_final_message",
            priority=1,
            progress="return_progress",
        ),
        Dialect(
            "llama-server",
            "llama-server",
            _LLAMA_CPP,
            {"json_schema": "response_format", "gbnf": "grammar", "choice": "grammar"},
            think="template",
            think_budget="thinking_budget_tokens",
            ignore_eos=True,
            prefill="implicit",
            echoes_prefill=True,
            progress="return_progress",
        ),
        Dialect(
            "vllm",
            "vLLM",
            _VLLM,
            _GUIDED,
            think="template",
            ignore_eos=True,
            prefill="continue_final_message",
            priority=-1,
        ),
        Dialect(
            "sglang",
            "SGLang",
            _VLLM,
            {"json_schema": "response_format", "gbnf": "ebnf", "regex": "regex", "choice": "regex"},
            think="template",
            ignore_eos=True,
            prefill="continue_final_message",
        ),
        Dialect(
            "tensorrt-llm",
            "TensorRT-LLM",
            _VLLM,
            {
                "json_schema": "guided_json",
                "gbnf": "guided_format",
                "regex": "guided_format",
                "choice": "guided_format",
            },
            think="template",
            ignore_eos=True,
        ),
        Dialect(
            "ollama",
            "Ollama",
            {name: key for name, key in _OPENAI.items() if name != "logit_bias"},
            think="effort",
            raw_is_verbatim=False,
        ),
        Dialect(
            "lm-studio",
            "LM Studio",
            {**_OPENAI, "top_k": "top_k", "repeat_penalty": "repeat_penalty"},
        ),
        Dialect(
            "llama-cpp-python",
            "llama-cpp-python's server",
            _LLAMA,
            {"json_schema": "json_object", "gbnf": "grammar", "choice": "grammar"},
            needs_stream_usage=False,
        ),
    )
}
"""Every kind of server by its name in the configuration. The first is taken for one that is not recognized."""

OWNERS = {
    "localrun": "localrun",
    "llamacpp": "llama-server",
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt_llm": "tensorrt-llm",
    "library": "ollama",
    "organization_owner": "lm-studio",
    "me": "llama-cpp-python",
}
"""What a server writes as `owned_by` of its models → its dialect."""
