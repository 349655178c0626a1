"""What a user sets for a chat, and its form on disk.

Knows the parameters and plain JSON; knows no engine. Invariant: `from_facts(to_facts(s)) == s`; what an older or newer
program wrote is read as far as it is known, and a value that is out of range is an error, not a surprise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from localrun.errors import UsageError
from localrun.params import ConstraintSpec, GenerationParams, OverflowPolicy, SamplingParams

OnFull = Literal["ask", "compact", "shift"]
ON_FULL: tuple[OnFull, ...] = ("ask", "compact", "shift")


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """How the next answers are made."""

    system: str = ""
    params: GenerationParams = field(default_factory=GenerationParams)
    on_full: OnFull = "ask"
    """What to do when the context is full: ask the user, or do what was chosen once for all; always visibly."""

    def __post_init__(self) -> None:
        if self.on_full not in ON_FULL:
            raise UsageError(f"on-full is {self.on_full!r}", hint=f"one of {', '.join(ON_FULL)}")


def to_facts(settings: ChatSettings) -> dict[str, Any]:
    """The settings as a JSON object, complete: an answer can be made again from them in ten years."""
    facts = asdict(settings)
    sampling = facts["params"]["sampling"]
    # JSON has no infinity: a banned token's bias is written as null.
    sampling["logit_bias"] = [[token, None if math.isinf(bias) else bias] for token, bias in sampling["logit_bias"]]
    return facts


def from_facts(facts: Mapping[str, Any]) -> ChatSettings:
    """The settings in a JSON object; what is missing is the default. Raises `UsageError` for values out of range."""
    params = dict(_known(GenerationParams, facts.get("params") or {}))
    sampling = dict(_known(SamplingParams, params.pop("sampling", None) or {}))
    if "logit_bias" in sampling:
        sampling["logit_bias"] = tuple(
            (int(token), -math.inf if bias is None else float(bias)) for token, bias in sampling["logit_bias"]
        )
    if "order" in sampling:
        sampling["order"] = tuple(sampling["order"])
    if "stop" in params:
        params["stop"] = tuple(params["stop"])
    if "on_overflow" in params:
        params["on_overflow"] = OverflowPolicy(params["on_overflow"])
    if params.get("constraint") is not None:
        constraint = dict(_known(ConstraintSpec, params["constraint"]))
        if isinstance(constraint["source"], list):
            constraint["source"] = tuple(constraint["source"])
        if "followers" in constraint:
            constraint["followers"] = tuple(constraint["followers"])
        params["constraint"] = ConstraintSpec(**constraint)
    rest = {name: value for name, value in _known(ChatSettings, facts).items() if name != "params"}
    return ChatSettings(params=GenerationParams(sampling=SamplingParams(**sampling), **params), **rest)


def _known(kind: type, facts: Mapping[str, Any]) -> dict[str, Any]:
    names = {known.name for known in fields(kind)}
    return {name: value for name, value in facts.items() if name in names}


def with_temperature(settings: ChatSettings, written: str) -> ChatSettings:
    """The settings with the temperature that a person wrote. Raises `UsageError`."""
    try:
        temperature = float(written)
    except ValueError as error:
        raise UsageError(f"{written!r} is no temperature", hint="a number such as 0.7; 0 is greedy") from error
    sampling = replace(settings.params.sampling, temperature=temperature)
    return replace(settings, params=replace(settings.params, sampling=sampling))
