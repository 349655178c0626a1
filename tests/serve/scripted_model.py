"""A model whose answers a test writes: one thread takes a step at a time and gives each running answer one character.

It keeps the promises of the local responder that a server builds on: `start` returns at once, events come on the
model's own thread, `stop` is read before each step, and every answer ends with one `Done` or one error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from localrun.chat.template import ChatTemplate
from localrun.engine.detokenizer import Detokenizer
from localrun.errors import ContextOverflowError, EngineError, LocalrunError
from localrun.responder import (
    Done,
    Finish,
    ModelIdentity,
    ModelInfo,
    PrefillProgress,
    ReasoningPiece,
    Request,
    Result,
    TextPiece,
    Timings,
    TokenChosen,
    Usage,
)

Script = Callable[[Request], "str | LocalrunError"]

TEMPLATE = (
    "{%- if tools %}<|im_start|>system\n<tools>{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}</tools>\n"
    'Call with <tool_call>\n{"name": ..., "arguments": ...}\n</tool_call><|im_end|>\n{% endif %}'
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def echo(request: Request) -> str:
    """Says what was asked, and who asked."""
    return f"You said: {asked(request)}"


def asked(request: Request) -> str:
    if request.raw is not None:
        return request.raw.decode()
    return request.messages[-1].content


@dataclass(eq=False)
class ScriptedAnswer:
    """One answer on its way. `<think>…</think>` at its beginning is told as reasoning."""

    request: Request
    sink: Any
    text: str
    begun_at: float = field(default_factory=time.perf_counter)
    said: int = 0
    stopped: bool = False
    steps_after_stop: int = 0
    first_at: float = 0.0

    def __post_init__(self) -> None:
        self.stops = Detokenizer((*self.request.params.stop, *self.request.tags))
        self.out: list[str] = []
        self.reasoning, _, rest = self.text.removeprefix("<think>").rpartition("</think>")
        self.text = rest if self.text.startswith("<think>") else self.text

    def stop(self) -> None:
        self.stopped = True


class ScriptedModel:
    """Answers as `script` says; `step_s` is how long a step takes."""

    def __init__(
        self, script: Script = echo, *, parallel: int = 4, context: int = 1000, step_s: float = 0.0, name: str = "tiny"
    ) -> None:
        self.script, self.parallel, self.context, self.step_s = script, parallel, context, step_s
        self.template = ChatTemplate(TEMPLATE, name=name)
        self.info = ModelInfo(ModelIdentity(name), context, can_chat=True, can_think=False)
        self.requests: list[Request] = []
        self.waiting: list[ScriptedAnswer] = []
        self.running: list[ScriptedAnswer] = []
        self.ended: list[ScriptedAnswer] = []
        self.steps = 0
        self.closed = False
        self.failed = False
        self.hold = threading.Event()
        """While it is clear, no step is taken."""
        self.hold.set()
        self._lock = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="scripted-model", daemon=True)
        self._thread.start()

    def start(self, request: Request, sink: Any) -> ScriptedAnswer:
        told = self.script(request)
        if isinstance(told, LocalrunError) and not isinstance(told, ContextOverflowError):
            raise told
        if self.failed:
            raise EngineError("the engine is closed")
        self.requests.append(request)
        answer = ScriptedAnswer(request, sink, told if isinstance(told, str) else "")
        if isinstance(told, LocalrunError):
            sink.put((answer, told))
            return answer
        with self._lock:
            self.waiting.append(answer)
            self._lock.notify()
        return answer

    def close(self) -> None:
        self.hold.set()
        with self._lock:
            self.closed = True
            self._lock.notify()
        self._thread.join()

    def fail(self) -> None:
        """Dies as an engine with a bug does: everybody is told, and nobody is answered any more."""
        error = EngineError("the engine stopped because of a bug: KeyError: 'x'")
        self.hold.clear()
        self.failed = True
        with self._lock:
            dying, self.running, self.waiting = [*self.running, *self.waiting], [], []
        for answer in dying:
            answer.sink.put((answer, error))
        self.hold.set()

    @property
    def idle(self) -> bool:
        return not (self.waiting or self.running)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self.closed or not self.idle)
                if self.closed and self.idle:
                    return
            self.hold.wait()
            self._step()
            time.sleep(self.step_s)

    def _step(self) -> None:
        self.steps += 1
        for answer in [a for a in (*self.running, *self.waiting) if a.stopped or self.closed]:
            self._finish(answer, "interrupted")
        with self._lock:
            while self.waiting and len(self.running) < self.parallel:
                answer = self.waiting.pop(0)
                self.running.append(answer)
                n = self._n_prompt(answer)
                answer.sink.put((answer, PrefillProgress(n, n, 0)))
        for answer in list(self.running):
            self._say(answer)

    def _say(self, answer: ScriptedAnswer) -> None:
        limit = answer.request.params.max_tokens
        if answer.said == 0 and answer.reasoning:
            answer.sink.put((answer, ReasoningPiece(answer.reasoning)))
        if answer.said >= len(answer.text):
            self._finish(answer, "stop")
        elif limit is not None and answer.said >= limit:
            self._finish(answer, "length")
        else:
            character = answer.text[answer.said]
            answer.said += 1
            answer.first_at = answer.first_at or time.perf_counter()
            if answer.request.params.logprobs is not None:
                answer.sink.put((answer, TokenChosen(character.encode(), -0.5, ((character.encode(), -0.5),))))
            self._show(answer, answer.stops.push(character.encode()))
            if answer.stops.stopped is not None:
                self._finish(answer, "stop_string")

    def _show(self, answer: ScriptedAnswer, text: str) -> None:
        if text:
            answer.out.append(text)
            answer.sink.put((answer, TextPiece(text)))

    def _finish(self, answer: ScriptedAnswer, finish: Finish) -> None:
        self._show(answer, answer.stops.finish())
        for answers in (self.running, self.waiting):
            if answer in answers:
                answers.remove(answer)
        self.ended.append(answer)
        now = time.perf_counter()
        result = Result(
            text="".join(answer.out),
            reasoning=answer.reasoning,
            finish=finish,
            stop=answer.stops.stopped,
            seed=answer.request.params.sampling.seed or 0,
            model=self.info.identity,
            usage=Usage(prompt_tokens=self._n_prompt(answer), completion_tokens=answer.said),
            timings=Timings(
                ttft_s=(answer.first_at or now) - answer.begun_at,
                decode_s=now - (answer.first_at or now),
                total_s=now - answer.begun_at,
            ),
        )
        answer.sink.put((answer, Done(result)))

    def _n_prompt(self, answer: ScriptedAnswer) -> int:
        return len(asked(answer.request)) + 10
