"""Runs sequences through an engine to their end, without threads."""

from __future__ import annotations

from dataclasses import dataclass, field

from localrun.engine.engine import Engine
from localrun.engine.events import EngineEvent, Failed, Finished, Notice, Progress
from localrun.engine.output import TextOutput
from localrun.engine.ports import Matcher
from localrun.engine.sequence import Sequence
from localrun.errors import LocalrunError
from localrun.params import GenerationParams, SamplingParams

GREEDY = SamplingParams(temperature=0)


@dataclass
class Listener:
    """Everything one sequence said."""

    text: str = ""
    events: list[EngineEvent] = field(default_factory=list)

    @property
    def finished(self) -> Finished:
        assert isinstance(self.events[-1], Finished), self.events[-1]
        return self.events[-1]

    @property
    def error(self) -> LocalrunError:
        assert isinstance(self.events[-1], Failed), self.events[-1]
        return self.events[-1].error

    @property
    def notices(self) -> list[str]:
        return [event.code for event in self.events if isinstance(event, Notice)]

    @property
    def progress(self) -> list[Progress]:
        return [event for event in self.events if isinstance(event, Progress)]

    def add(self, text: str) -> None:
        self.text += text


def make(
    prompt: bytes | list[int], params: GenerationParams | None = None, *, seed: int = 1, matcher: Matcher | None = None
) -> tuple[Sequence, Listener]:
    """A sequence of byte tokens and the listener that hears of it."""
    params = params or GenerationParams(sampling=GREEDY, max_tokens=16)
    listener = Listener()
    tokens = list(prompt)
    sequence = Sequence(
        tokens=tokens,
        n_prompt=len(tokens),
        params=params,
        seed=seed,
        output=TextOutput(listener.add, params.stop),
        notify=listener.events.append,
        matcher=matcher,
    )
    return sequence, listener


def run(engine: Engine, *sequences: Sequence, max_steps: int = 10_000) -> None:
    """Submit `sequences` and step until nothing is left to do."""
    for sequence in sequences:
        engine.submit(sequence)
    for _ in range(max_steps):
        if not engine.busy:
            return
        engine.step()
    raise AssertionError(f"the engine was still busy after {max_steps} steps")
