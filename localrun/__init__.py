"""localrun: run, shrink and script language models on your own machine.

    import localrun

    with localrun.load("smollm2:135m") as model:
        print(model.generate("Why is the sky blue?", max_tokens=60, temperature=0).text)
        for piece in model.stream("Write a haiku about rain.", seed=1):
            print(piece, end="", flush=True)

Importing this package is cheap: the engine, the catalogue and numpy are imported when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localrun.api import Model, load
    from localrun.chat.messages import Message
    from localrun.errors import LocalrunError
    from localrun.params import ConstraintSpec, EngineParams, GenerationParams, OverflowPolicy, SamplingParams
    from localrun.responder import Result
    from localrun.spread import Spread

__version__ = "0.1.0"

__all__ = [
    "ConstraintSpec",
    "EngineParams",
    "GenerationParams",
    "LocalrunError",
    "Message",
    "Model",
    "OverflowPolicy",
    "Result",
    "SamplingParams",
    "Spread",
    "__version__",
    "load",
]

_HOMES = {
    "ConstraintSpec": "localrun.params",
    "EngineParams": "localrun.params",
    "GenerationParams": "localrun.params",
    "LocalrunError": "localrun.errors",
    "Message": "localrun.chat.messages",
    "Model": "localrun.api",
    "OverflowPolicy": "localrun.params",
    "Result": "localrun.responder",
    "SamplingParams": "localrun.params",
    "Spread": "localrun.spread",
    "load": "localrun.api",
}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'localrun' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
