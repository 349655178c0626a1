"""Requests through the product's own path, with the times that a user would see.

Knows the local responder; knows no suite. Prompts are made of common words in random order, so that no two of them
share a beginning unless that is what is measured. Invariant: every answer has exactly the length that was asked for,
because the model is not allowed to end by itself.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from localrun.errors import LocalrunError
from localrun.local import LocalResponder
from localrun.local.answer import Answer
from localrun.params import GenerationParams, SamplingParams
from localrun.responder import Done, Event, Request, Result

_TEXT = (
    "time year people way day man thing woman life child world school state family student group country problem "
    "hand part place case week company system program question work government number night point home water room "
    "mother area money story fact month lot right study book eye job word business issue side kind head house"
)
_WORDS = _TEXT.split()
_GREEDY = SamplingParams(temperature=0.0, seed=0)


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer, with times in seconds."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    ttft_s: float
    """Time to first token: from the request to its first token."""
    tpot_s: float
    """Time per output token: from the first token to the last, for each token after the first."""
    decode_s: float
    prefill_tps: float

    @property
    def decode_tps(self) -> float:
        return 1 / self.tpot_s if self.tpot_s else 0.0


class Probe:
    """Asks one responder. Prompts come from one seed, so that two runs ask the same."""

    def __init__(self, responder: LocalResponder, seed: int = 7) -> None:
        self.responder = responder
        self._random = random.Random(seed)
        self._words_per_token = 1.0

    def prompt(self, n_tokens: int) -> bytes:
        """A text of `n_tokens` tokens or very nearly so, unlike any other."""
        count = max(1, round(n_tokens * self._words_per_token))
        words = self._random.choices(_WORDS, k=count)
        text = " ".join(words).encode()
        for _ in range(3):
            n = len(self.responder.encode(_request(text, 1)).ids)
            if n == n_tokens:
                break
            self._words_per_token *= n_tokens / max(1, n)
            wanted = max(1, count + round((n_tokens - n) * count / max(1, n)))
            words = (words + self._random.choices(_WORDS, k=max(0, wanted - count)))[:wanted]
            count, text = wanted, " ".join(words).encode()
        return text

    def ask(self, prompt: bytes, n_tokens: int) -> Sample:
        """One request, alone."""
        for event in self.responder.respond(_request(prompt, n_tokens)):
            if isinstance(event, Done):
                return _sample(event.result)
        raise AssertionError("a responder ends with Done or an error")

    def ask_all(self, prompts: Sequence[bytes], n_tokens: int) -> tuple[list[Sample], float]:
        """All requests at once; their samples, and the seconds until the last had ended."""
        sink: queue.SimpleQueue[tuple[Answer, Event | LocalrunError]] = queue.SimpleQueue()
        started = time.perf_counter()
        answers = [self.responder.start(_request(prompt, n_tokens), sink) for prompt in prompts]
        samples: list[Sample] = []
        try:
            while len(samples) < len(answers):
                _, event = sink.get()
                if isinstance(event, LocalrunError):
                    raise event
                if isinstance(event, Done):
                    samples.append(_sample(event.result))
        finally:
            for answer in answers:
                answer.close()
        return samples, time.perf_counter() - started

    def ask_over_time(self, arrivals: Sequence[tuple[float, bytes, int]]) -> list[Sample]:
        """Requests that come at given seconds (time, prompt, tokens), whether or not earlier ones have ended.

        An open loop: a slow server does not slow the arrivals down, as it would with users who wait for each other.
        """
        sink: queue.SimpleQueue[tuple[Answer, Event | LocalrunError]] = queue.SimpleQueue()
        answers: list[Answer] = []
        failures: list[LocalrunError] = []

        def send() -> None:
            started = time.perf_counter()
            for at, prompt, n_tokens in arrivals:
                time.sleep(max(0.0, started + at - time.perf_counter()))
                try:
                    answers.append(self.responder.start(_request(prompt, n_tokens), sink))
                except LocalrunError as error:  # told below, on the thread that measures
                    failures.append(error)
                    return

        sender = threading.Thread(target=send, name="localrun-arrivals", daemon=True)
        sender.start()
        samples: list[Sample] = []
        while len(samples) < len(arrivals) and not failures:
            try:
                _, event = sink.get(timeout=0.5)
            except queue.Empty:
                continue
            if isinstance(event, LocalrunError):
                raise event
            if isinstance(event, Done):
                samples.append(_sample(event.result))
        sender.join()
        if failures:
            raise failures[0]
        return samples


def _request(prompt: bytes, n_tokens: int) -> Request:
    return Request(GenerationParams(sampling=_GREEDY, max_tokens=n_tokens, ignore_eos=True), raw=prompt)


def _sample(result: Result) -> Sample:
    usage, timings = result.usage, result.timings
    after_first = max(1, usage.completion_tokens - 1)
    return Sample(
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_ram_tokens + usage.cached_disk_tokens,
        completion_tokens=usage.completion_tokens,
        ttft_s=timings.ttft_s,
        tpot_s=timings.decode_s / after_first,
        decode_s=timings.decode_s,
        prefill_tps=timings.prefill_tps,
    )
