"""Option types that several commands share.

Only types and help texts, so that a flag is called, described and grouped the same everywhere.
"""

from __future__ import annotations

from typing import Annotated

import typer

_SAMPLING = "Sampling"
_ENGINE = "Engine"


def _option(*names: str, help: str, panel: str | None = None, metavar: str | None = None) -> typer.models.OptionInfo:
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, show_default=False)


Model = Annotated[str | None, _option("-m", "--model", help="Model: a name, a path, hf:…, pypi:… or a URL.")]
System = Annotated[str | None, _option("-s", "--system", help="System prompt.")]

MaxTokens = Annotated[int | None, _option("-n", "--max-tokens", help="Most tokens of the answer.")]
Stop = Annotated[list[str] | None, _option("--stop", help="End the answer before this string (repeatable).")]
Ctx = Annotated[str | None, _option("--ctx", help="Context length in tokens, or auto.", metavar="N|auto")]
OnOverflow = Annotated[
    str | None,
    _option("--on-overflow", help="When the context is full: error, shift or truncate-middle.", metavar="POLICY"),
]
Timeout = Annotated[float | None, _option("--timeout", help="End the answer after so many seconds.")]
IgnoreEos = Annotated[bool | None, _option("--ignore-eos", help="Never let the model end by itself.")]

Temperature = Annotated[float | None, _option("--temperature", help="0 is greedy.", panel=_SAMPLING)]
TopK = Annotated[int | None, _option("--top-k", help="Keep the k most likely tokens; 0: all.", panel=_SAMPLING)]
TopP = Annotated[float | None, _option("--top-p", help="Keep this much probability; 1: all.", panel=_SAMPLING)]
MinP = Annotated[float | None, _option("--min-p", help="Least share of the best token's probability.", panel=_SAMPLING)]
TypicalP = Annotated[float | None, _option("--typical-p", help="Locally typical sampling; 1: off.", panel=_SAMPLING)]
TopNSigma = Annotated[
    float | None, _option("--top-n-sigma", help="Keep logits within n deviations of the best.", panel=_SAMPLING)
]
Xtc = Annotated[
    str | None, _option("--xtc", help="Exclude top choices.", panel=_SAMPLING, metavar="PROBABILITY[,THRESHOLD]")
]
Dry = Annotated[
    str | None,
    _option("--dry", help="Penalize repeated runs.", panel=_SAMPLING, metavar="MULTIPLIER[,BASE[,LENGTH[,LAST_N]]]"),
]
RepeatPenalty = Annotated[float | None, _option("--repeat-penalty", help="1: off.", panel=_SAMPLING)]
RepeatLastN = Annotated[
    int | None, _option("--repeat-last-n", help="How far back penalties look; -1: everything.", panel=_SAMPLING)
]
FrequencyPenalty = Annotated[float | None, _option("--frequency-penalty", help="0: off.", panel=_SAMPLING)]
PresencePenalty = Annotated[float | None, _option("--presence-penalty", help="0: off.", panel=_SAMPLING)]
Mirostat = Annotated[str | None, _option("--mirostat", help="0, 1 or 2.", panel=_SAMPLING, metavar="V[,TAU[,ETA]]")]
LogitBias = Annotated[
    list[str] | None,
    _option(
        "--logit-bias", help="Change a token's logit (repeatable); -inf bans it.", panel=_SAMPLING, metavar="ID=BIAS"
    ),
]
Seed = Annotated[int | None, _option("--seed", help="The same seed gives the same text.", panel=_SAMPLING)]
SamplerOrder = Annotated[
    str | None, _option("--sampler-order", help="Samplers in this order.", panel=_SAMPLING, metavar="A,B,…")
]

Think = Annotated[bool | None, _option("--think/--no-think", help="Let the model reason first, or not.")]
ThinkBudget = Annotated[int | None, _option("--think-budget", help="Most tokens of reasoning.")]

Threads = Annotated[str | None, _option("--threads", help="Threads, or auto.", panel=_ENGINE, metavar="N|auto")]
GpuLayers = Annotated[
    str | None, _option("--gpu-layers", help="Layers on the GPU.", panel=_ENGINE, metavar="N|auto|all")
]
KvType = Annotated[str | None, _option("--kv-type", help="f16, q8_0 or q4_0.", panel=_ENGINE, metavar="TYPE")]
FlashAttention = Annotated[
    bool | None, _option("--flash-attention/--no-flash-attention", help="Default: what is faster.", panel=_ENGINE)
]
Strict = Annotated[bool | None, _option("--strict", help="Warnings are errors.")]
Offline = Annotated[bool | None, _option("--offline", help="Never use the network.")]
Quiet = Annotated[bool | None, _option("-q", "--quiet", help="No notes, warnings or progress on stderr.")]
