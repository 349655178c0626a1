"""A responder that says what a test tells it to, with a token for each word.

It keeps a prefix cache of the prompts it has seen, so counts of reused tokens are real; it can be held at any piece,
so a test decides when time passes.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence

from localrun.errors import ContextOverflowError, LocalrunError
from localrun.responder import (
    Done,
    Event,
    Finish,
    LoadProgress,
    ModelIdentity,
    ModelInfo,
    PrefillProgress,
    ReasoningPiece,
    Request,
    Result,
    TextPiece,
    Timings,
    Usage,
)


def tokens(text: str) -> list[str]:
    return re.findall(r"\S+\s*|\s+", text)


class ScriptedResponder:
    """Answers from a list of texts (the last one again and again); errors in the list are raised."""

    def __init__(
        self,
        *answers: str | LocalrunError,
        reasoning: str = "",
        context_limit: int = 4096,
        name: str = "scripted:1b",
        can_think: bool = False,
        can_chat: bool = True,
    ) -> None:
        self.answers = list(answers) or ["Hello there."]
        self.reasoning = reasoning
        self.requests: list[Request] = []
        self.closed = False
        self.hold: threading.Event | None = None
        """When set to an event, each piece after the first waits for it."""
        self.hold_prefill: threading.Event | None = None
        """When set to an event, the prompt is not read before it is set."""
        self._stop = threading.Event()
        self._cached: list[str] = []
        self._info = ModelInfo(
            ModelIdentity(name, f"/models/{name}.gguf", "Q4_K_M", "ab" * 32), context_limit, can_chat, can_think
        )

    @property
    def info(self) -> ModelInfo:
        return self._info

    def count_tokens(self, request: Request) -> int:
        return len(self._prompt(request))

    @staticmethod
    def _prompt(request: Request) -> list[str]:
        parts = [f"<{message.role}> {message.content}\n" for message in request.messages]
        return tokens("".join(parts) + request.prefill)

    def respond(self, request: Request) -> Iterator[Event]:
        self._stop.clear()
        self.requests.append(request)
        prompt = self._prompt(request)
        limit = self._info.context_limit
        if len(prompt) >= limit:
            raise ContextOverflowError(f"the prompt has {len(prompt)} tokens, the context {limit}")
        script = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(script, LocalrunError):
            raise script
        reused = self._reused(prompt)
        yield LoadProgress(1.0)
        yield PrefillProgress(reused, len(prompt), reused)
        self._wait(self.hold_prefill)
        yield PrefillProgress(len(prompt), len(prompt), reused)
        yield from self._speak(request, prompt, reused, script)

    def _speak(self, request: Request, prompt: list[str], reused: int, script: str) -> Iterator[Event]:
        said: list[str] = []
        finish: Finish = "stop"
        for piece in tokens(self.reasoning):
            yield ReasoningPiece(piece)
        for index, piece in enumerate(tokens(script)):
            if index:
                self._wait(self.hold)
            if self._stop.is_set():
                finish = "interrupted"
                break
            if len(prompt) + len(said) >= self._info.context_limit:
                finish = "context"
                break
            if request.params.max_tokens is not None and len(said) >= request.params.max_tokens:
                finish = "length"
                break
            said.append(piece)
            yield TextPiece(piece)
        self._cached = prompt + said
        yield Done(self._result(request, "".join(said), finish, (len(prompt), reused, len(said))))

    def _result(self, request: Request, text: str, finish: Finish, counts: tuple[int, int, int]) -> Result:
        n_prompt, n_reused, n_said = counts
        seed = request.params.sampling.seed
        return Result(
            text=text,
            reasoning=self.reasoning,
            finish=finish,
            stop=None,
            seed=1234 if seed is None else seed,
            model=self._info.identity,
            usage=Usage(
                prompt_tokens=n_prompt,
                cached_ram_tokens=n_reused,
                completion_tokens=n_said,
                reasoning_tokens=len(tokens(self.reasoning)),
            ),
            timings=Timings(ttft_s=0.21, decode_s=n_said / 42, total_s=n_said / 42 + 0.21, decode_tps=42.0),
            context_used=n_prompt + n_said,
            context_limit=self._info.context_limit,
        )

    def _reused(self, prompt: Sequence[str]) -> int:
        same = 0
        for old, new in zip(self._cached, prompt[:-1], strict=False):
            if old != new:
                break
            same += 1
        return same

    def _wait(self, gate: threading.Event | None) -> None:
        while gate is not None and not gate.wait(0.005):
            if self._stop.is_set():
                return

    def stop(self) -> None:
        self._stop.set()

    def close(self) -> None:
        self.closed = True


def held(*answers: str, **options: object) -> ScriptedResponder:
    """A model that says its first word and waits."""
    model = ScriptedResponder(*answers, **options)  # type: ignore[arg-type]
    model.hold = threading.Event()
    return model
