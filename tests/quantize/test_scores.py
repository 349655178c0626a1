"""The figures of the report are those of their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from quantize.errors import WeightError
from quantize.verify import Scores
from quantize.verify.causes import SamplerSettings, sampler_effect
from quantize.verify.scores import log_softmax

RNG = np.random.default_rng(5)
N, VOCAB = 400, 50
BASE = RNG.standard_normal((N, VOCAB)).astype(np.float32) * 3
OTHER = BASE + RNG.standard_normal((N, VOCAB)).astype(np.float32) * 0.3
TARGETS = RNG.integers(0, VOCAB, N).astype(np.int32)


def scores() -> Scores:
    found = Scores()
    for start in range(0, N, 64):
        part = slice(start, start + 64)
        found.add(BASE[part], OTHER[part], TARGETS[part])
    return found


def softmax(logits: np.ndarray) -> np.ndarray:
    wide = logits.astype(np.float64)
    chances = np.exp(wide - wide.max(axis=1, keepdims=True))
    return chances / chances.sum(axis=1, keepdims=True)


def test_every_figure_follows_its_definition() -> None:
    p, q, rows = softmax(BASE), softmax(OTHER), np.arange(N)
    divergence = (np.where(np.log(p) > -16, p, 0) * (np.log(p) - np.log(q))).sum(axis=1)
    change = q[rows, TARGETS] - p[rows, TARGETS]
    found = scores().statistics()
    assert found is not None
    assert found.positions == N
    assert found.perplexity == pytest.approx(np.exp(-np.log(q[rows, TARGETS]).mean()), rel=1e-5)
    assert found.perplexity_base == pytest.approx(np.exp(-np.log(p[rows, TARGETS]).mean()), rel=1e-5)
    assert found.log_ratio == pytest.approx(np.log(p[rows, TARGETS] / q[rows, TARGETS]).mean(), abs=1e-6)
    assert found.divergence == pytest.approx(divergence.mean(), rel=1e-4)
    assert found.divergence_error == pytest.approx(divergence.std() / (N - 1) ** 0.5, rel=1e-3)
    assert found.divergence_median == pytest.approx(np.median(divergence), rel=1e-3)
    assert found.divergence_999 == pytest.approx(np.quantile(divergence, 0.999), rel=1e-4)
    assert found.same_top == pytest.approx((p.argmax(axis=1) == q.argmax(axis=1)).mean())
    assert found.rms_probability_change == pytest.approx((change**2).mean() ** 0.5, rel=1e-4)
    assert found.mean_probability_change == pytest.approx(change.mean(), abs=1e-6)
    assert found.drawn_differently == pytest.approx(0.5 * np.abs(p - q).sum(axis=1).mean(), rel=1e-4)


def test_how_positions_are_grouped_does_not_matter() -> None:
    whole = Scores()
    whole.add(BASE, OTHER, TARGETS)
    merged = Scores()
    merged.merge(scores())
    assert merged.statistics() == whole.statistics()


def test_equal_models_have_no_divergence() -> None:
    same = Scores()
    same.add(BASE, BASE.copy(), TARGETS)
    found = same.statistics()
    assert found is not None
    assert found.divergence == 0
    assert found.same_top == 1
    assert found.rms_probability_change == 0
    assert found.log_ratio_error == 0


def test_few_positions_give_no_figures() -> None:
    few = Scores()
    assert few.statistics() is None
    few.add(BASE[:99], OTHER[:99], TARGETS[:99])
    assert few.statistics() is None


def test_answers_that_are_no_numbers_are_an_error() -> None:
    broken = OTHER.copy()
    broken[7] = np.nan
    with pytest.raises(WeightError, match="NaN"):
        Scores().add(BASE, broken, TARGETS)


def test_probabilities_sum_to_one_however_large_the_logits() -> None:
    for shift in (-1e4, 0, 1e4):
        np.testing.assert_allclose(np.exp(log_softmax(BASE + np.float32(shift))[0]).sum(axis=1), 1, rtol=2e-3)


def test_a_sampler_that_does_nothing_changes_nothing() -> None:
    nothing = SamplerSettings(temperature=1, top_k=VOCAB, top_p=1, min_p=0)
    assert sampler_effect(BASE, nothing) == pytest.approx(0, abs=1e-6)


def test_a_greedy_sampler_changes_all_but_the_best_token_s_share() -> None:
    greedy = SamplerSettings(temperature=1, top_k=1, top_p=1, min_p=0)
    assert sampler_effect(BASE, greedy) == pytest.approx(1 - softmax(BASE).max(axis=1).mean(), rel=1e-5)
