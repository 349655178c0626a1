"""What an operator watches, in Prometheus' words.

Knows the metrics library; knows no request. Invariant: each server has a registry of its own, and no label holds
anything that a client wrote.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from localrun.responder import Result

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_TTFT = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_TPOT = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1)
_WHOLE = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """All metrics of one server."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.responses = Counter("localrun_responses", "Responses.", ["endpoint", "status"], registry=registry)
        self.tokens = Counter("localrun_tokens", "Tokens.", ["model", "kind"], registry=registry)
        self.ttft = Histogram(
            "localrun_ttft_seconds", "Time to the first token.", ["model"], buckets=_TTFT, registry=registry
        )
        self.tpot = Histogram(
            "localrun_tpot_seconds", "Time per token after the first.", ["model"], buckets=_TPOT, registry=registry
        )
        self.whole = Histogram(
            "localrun_answer_seconds", "Time of a whole answer.", ["model"], buckets=_WHOLE, registry=registry
        )
        self.answers = Counter("localrun_answers", "Answers by how they ended.", ["model", "finish"], registry=registry)
        self.in_flight = Gauge(
            "localrun_answers_in_flight", "Answers running or waiting.", ["model"], registry=registry
        )
        self.waiting = Gauge("localrun_queue", "Answers waiting for a place.", ["model"], registry=registry)
        self.refused = Counter("localrun_refused", "Requests beyond the queue.", ["model"], registry=registry)
        self.loaded = Gauge("localrun_models_loaded", "Models in memory.", registry=registry)
        self.failures = Counter("localrun_engine_failures", "Engines that failed.", ["model"], registry=registry)
        self.loads = Counter("localrun_model_loads", "Models read into memory.", ["model"], registry=registry)

    def count(self, model: str, in_flight: int, parallel: int) -> None:
        """How many answers a model has now."""
        self.in_flight.labels(model).set(in_flight)
        self.waiting.labels(model).set(max(0, in_flight - parallel))

    def finished(self, model: str, result: Result) -> None:
        """Count one answer."""
        usage, timings = result.usage, result.timings
        for kind, count in (
            ("prompt", usage.prompt_tokens),
            ("cached_ram", usage.cached_ram_tokens),
            ("cached_disk", usage.cached_disk_tokens),
            ("generated", usage.completion_tokens),
        ):
            self.tokens.labels(model, kind).inc(count)
        self.answers.labels(model, result.finish).inc()
        self.whole.labels(model).observe(timings.total_s)
        if usage.completion_tokens:
            self.ttft.labels(model).observe(timings.ttft_s)
        if usage.completion_tokens > 1:
            self.tpot.labels(model).observe(timings.decode_s / (usage.completion_tokens - 1))

    def text(self) -> bytes:
        """The page that Prometheus reads."""
        return generate_latest(self._registry)
