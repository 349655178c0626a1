"""Promises of the suites, on a probe that answers at once with the times of a simple machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from localrun.bench.probe import Probe, Sample
from localrun.bench.suites import SIZES, Suite, Target, arrivals, latencies
from localrun.hardware.shape import Layer, ModelShape

LAYER = Layer(k_width=64, v_width=64, windowed=False, recurrent=False, weight_bytes=1000, expert_bytes=0)
SHAPE = ModelShape(
    architecture="llama", n_ctx_train=8192, n_embd=64, n_heads=4, q_width=64, kv_width=64, n_ff=128, n_ff_expert=0,
    n_experts=0, n_experts_used=0, n_vocab=1000, window=0, mla_latent=0, mla_key=0, state_width=0, layers=(LAYER,),
    input_bytes=500, output_bytes=500, tied=False, other_bytes=0,
)  # fmt: skip


class SimpleMachine:
    """Computes 100 prompt tokens a second and 10 output tokens a second; remembers every prompt."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self.asked: list[tuple[int, int]] = []
        self._count = 0

    def prompt(self, n_tokens: int) -> bytes:
        self._count += 1
        return f"{self._count:08d}".encode() + bytes(n_tokens)

    def ask(self, prompt: bytes, n_tokens: int) -> Sample:
        length = len(prompt) - 8
        self.asked.append((length, n_tokens))
        cached = length - 1 if prompt in self.seen else 0
        self.seen.add(prompt)
        return Sample(length, cached, n_tokens, (length - cached) / 100, 0.1, 0.1 * (n_tokens - 1), 100.0)

    def ask_all(self, prompts: Sequence[bytes], n_tokens: int) -> tuple[list[Sample], float]:
        return [self.ask(prompt, n_tokens) for prompt in prompts], 0.1 * n_tokens

    def ask_over_time(self, requests: Sequence[tuple[float, bytes, int]]) -> list[Sample]:
        return [self.ask(prompt, n) for _, prompt, n in requests]


def suite(machine: SimpleMachine, limit: int = 8192, name: str = "quick", **more: Any) -> Suite:
    values: dict[str, Any] = {"limit": limit, "bandwidth": 1e6, "say": lambda _: None} | more
    found = Suite(cast(Probe, machine), SHAPE, SIZES[name], **values)
    found.warm_up()
    return found


def test_the_first_token_of_a_known_prompt_comes_sooner() -> None:
    figures = {figure.name: figure for figure in suite(SimpleMachine()).first_tokens()}
    assert figures["ttft/cold/prompt=128"].median == pytest.approx(1.28)
    assert figures["ttft/cached/prompt=128"].median == pytest.approx(0.01)
    assert figures["prefill/prompt=128"].median == 100
    assert len(figures["ttft/cold/prompt=128"].samples) == SIZES["quick"].repeats


def test_prompts_that_take_too_long_or_do_not_fit_are_left_out() -> None:
    assert not any("2048" in figure.name for figure in suite(SimpleMachine()).first_tokens())
    machine = SimpleMachine()
    assert [figure.x for figure in suite(machine, limit=200).output_tokens()] == [128, 128]
    assert max(length for length, _ in machine.asked) <= 200


def test_time_per_token_stands_beside_its_roofline() -> None:
    figures = {figure.name: figure for figure in suite(SimpleMachine()).output_tokens()}
    tpot = figures["tpot/depth=128"]
    assert tpot.median == pytest.approx(0.1)
    assert tpot.bytes_per_token == SHAPE.active_bytes + (128 + 16) * 256
    assert tpot.roofline_share == pytest.approx(tpot.bytes_per_token / 1e6 / 0.1)
    assert figures["decode/depth=128"].median == pytest.approx(10)


def test_without_a_bandwidth_there_is_no_roofline() -> None:
    figures = suite(SimpleMachine(), bandwidth=None).output_tokens()
    assert all(figure.roofline_share is None for figure in figures)


def test_throughput_counts_all_sequences_together() -> None:
    one, four = suite(SimpleMachine()).throughput()
    assert four.median == pytest.approx(4 * one.median)


def test_goodput_counts_the_requests_that_met_their_target() -> None:
    fast = Sample(10, 0, 10, 0.5, 0.05, 0.45, 100)
    late = Sample(10, 0, 10, 5.0, 0.05, 0.45, 100)
    slow = Sample(10, 0, 10, 0.5, 1.00, 9.0, 100)
    figures = {f.name: f for f in latencies([fast, fast, late, slow], 2.0, 10.0, Target(1.0, 0.1))}
    assert figures["requests/rate=2"].median == 4
    assert figures["goodput/rate=2"].median == pytest.approx(0.2)
    assert figures["attainment/rate=2"].median == pytest.approx(50)
    assert figures["ttft/p50/rate=2"].median == 0.5
    assert figures["ttft/p99/rate=2"].median == 5.0
    assert figures["tpot/p99/rate=2"].median == 1.0


def test_arrivals_are_an_open_loop_at_the_rate_asked_for() -> None:
    found = arrivals(cast(Probe, SimpleMachine()), 50.0, 20.0, seed=3)
    times = [at for at, _, _ in found]
    assert times == sorted(times)
    assert len(found) == pytest.approx(1000, rel=0.15)
    assert found == arrivals(cast(Probe, SimpleMachine()), 50.0, 20.0, seed=3)
    assert len(arrivals(cast(Probe, SimpleMachine()), 0.001, 1.0, seed=3)) == 1


def test_serve_measures_each_rate() -> None:
    figures = suite(SimpleMachine(), name="serve").serve(Target(), (1.0, 2.0), 5.0)
    assert len({figure.name for figure in figures}) == 2 * 9
