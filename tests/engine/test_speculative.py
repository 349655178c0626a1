"""Guessing changes when a token comes, never which."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localrun.engine.engine import Engine
from localrun.engine.sequence import Sequence
from localrun.engine.speculative import Drafter, ModelDrafter, NgramDrafter, SpeculationGovernor
from localrun.params import GenerationParams, SamplingParams
from tests.engine.driver import GREEDY, Listener, make, run
from tests.fakes import FakeBackend


class Oracle:
    """Guesses the true continuation with some tokens made wrong."""

    def __init__(self, text: bytes, *, wrong_every: int = 10**9) -> None:
        self._text, self._wrong_every = text, wrong_every

    def propose(self, sequence: Sequence, n: int) -> list[int]:
        at = sequence.n_generated
        guess = enumerate(self._text[at : at + n], at)
        return [(t + 1) % 256 if i % self._wrong_every == self._wrong_every - 1 else t for i, t in guess]

    def forget(self, sequence: Sequence) -> None:
        return

    def set_threads(self, decode: int, prefill: int) -> None:
        return


class Always(SpeculationGovernor):
    """Never gives up."""

    def size(self) -> int:
        return 7


def generate(
    prompt: bytes, params: GenerationParams, drafter: Drafter | None, *, seed: int = 1, always: bool = True
) -> tuple[Listener, FakeBackend]:
    backend = FakeBackend(eog_rate=0.01)
    engine = Engine(backend, n_parallel=2, drafter=drafter)
    if always:
        engine._guessing.governor = Always()
    sequence, listener = make(prompt, params, seed=seed)
    run(engine, sequence)
    engine.forget_prefixes()
    assert backend.cells == []
    return listener, backend


@pytest.mark.parametrize("wrong_every", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_with_guesses_good_or_bad_the_text_is_that_of_plain_decoding(wrong_every: int, temperature: float) -> None:
    for seed in range(5):
        params = GenerationParams(sampling=SamplingParams(temperature=temperature), max_tokens=40)
        plain, _ = generate(b"tell me more", params, None, seed=seed)
        oracle = Oracle(plain.text.encode(), wrong_every=wrong_every)
        guessed, _ = generate(b"tell me more", params, oracle, seed=seed)
        assert guessed.text == plain.text
        assert guessed.finished.reason == plain.finished.reason
        assert guessed.finished.tokens == plain.finished.tokens


def test_right_guesses_save_decodes_and_are_counted() -> None:
    params = GenerationParams(sampling=GREEDY, max_tokens=40)
    plain, slow = generate(b"hello there", params, None)
    guessed, fast = generate(b"hello there", params, Oracle(plain.text.encode()))
    assert len(fast.decodes) < len(slow.decodes) / 3
    assert guessed.finished.n_draft_accepted == guessed.finished.n_draft > 20


def test_stop_strings_end_a_verified_run_where_they_should() -> None:
    backend = FakeBackend()
    backend.script[b"?"] = b"one two STOP three four"
    engine = Engine(backend, n_parallel=1, drafter=Oracle(b"one two STOP three four"))
    engine._guessing.governor = Always()
    sequence, listener = make(b"?", GenerationParams(sampling=GREEDY, stop=("STOP",)))
    run(engine, sequence)
    assert listener.text == "one two "


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1, 2, 3, 7]), st.integers(1, 30))
def test_a_batch_with_guesses_says_what_each_says_alone(seed: int, wrong_every: int, limit: int) -> None:
    params = GenerationParams(sampling=SamplingParams(temperature=0.8), max_tokens=limit)
    prompts = [b"first prompt", b"first prompt, longer", b"another"]
    plain = [generate(prompt, params, None, seed=seed)[0].text for prompt in prompts]
    engine = Engine(FakeBackend(eog_rate=0.01), n_parallel=2, drafter=NgramDrafter())
    engine._guessing.governor = Always()
    pairs = [make(prompt, params, seed=seed) for prompt in prompts]
    run(engine, *(sequence for sequence, _ in pairs))
    assert [listener.text for _, listener in pairs] == plain


def test_the_distribution_of_a_sampled_token_is_the_targets() -> None:
    """With a guess that is right about as often as not, each token comes as often as without."""
    params = GenerationParams(sampling=SamplingParams(temperature=1.0), max_tokens=2)
    favourite = Counter(generate(b"x", params, None, seed=s)[0].text for s in range(400))
    guess = favourite.most_common(1)[0][0].encode()
    guessed = Counter(generate(b"x", params, Oracle(guess), seed=s + 10_000)[0].text[-1:] for s in range(2000))
    plain = Counter(generate(b"x", params, None, seed=s + 20_000)[0].text[-1:] for s in range(2000))
    distance = sum(abs(guessed[c] - plain[c]) for c in {*guessed, *plain}) / (2 * 2000)
    again = Counter(generate(b"x", params, None, seed=s + 30_000)[0].text[-1:] for s in range(2000))
    honest = sum(abs(again[c] - plain[c]) for c in {*again, *plain}) / (2 * 2000)
    assert distance < 1.6 * honest


def test_prompt_lookup_finds_what_followed_the_last_time() -> None:
    drafter = NgramDrafter()
    sequence, _ = make(b"the cat sat on the mat. the cat s")
    assert bytes(drafter.propose(sequence, 6)) == b"at on "
    sequence.tokens += list(b"at")
    assert bytes(drafter.propose(sequence, 4)) == b" on "
    fresh, _ = make(b"abcdefg")
    assert drafter.propose(fresh, 4) == []


def test_a_governor_that_loses_switches_itself_off_and_tries_again_ever_less() -> None:
    governor = SpeculationGovernor()
    governor.observe(1, 1.0)
    tried = []
    for step in range(3000):
        if size := governor.size():
            tried.append(step)
            governor.learn(size, 0)
            governor.observe(size + 1, 2.4)
        governor.observe(1, 1.0)
    assert len(tried) < 40
    assert tried[-1] - tried[-2] > 4 * (tried[1] - tried[0])


def test_a_governor_that_wins_guesses_more() -> None:
    governor = SpeculationGovernor()
    governor.observe(1, 1.0)
    for _ in range(100):
        size = governor.size()
        governor.observe(1, 1.0)
        if size:
            governor.learn(size, size)
            governor.observe(size + 1, {4: 2.3, 8: 3.6, 16: 5.6}[size + 1])
    assert governor.size() == 15
    assert governor.gain(15) > 1.5


def test_a_draft_model_guesses_what_it_would_say_itself() -> None:
    """The same fake model as target and draft: every guess is right, and nothing leaks."""
    draft = FakeBackend(n_seq_max=2, eog_rate=0.01)
    params = GenerationParams(sampling=GREEDY, max_tokens=40)
    plain, slow = generate(b"a question", params, None)
    guessed, fast = generate(b"a question", params, ModelDrafter(draft))
    assert guessed.text == plain.text
    assert guessed.finished.n_draft_accepted == guessed.finished.n_draft > 0
    assert len(fast.decodes) < len(slow.decodes) / 3
    assert draft.cells == []


def test_a_draft_model_that_is_another_model_changes_nothing() -> None:
    draft = FakeBackend(n_seq_max=2, memory_kind="window", n_window=5)
    draft.memory_kind = "full"  # it predicts from five tokens only, and keeps everything
    for seed in range(3):
        params = GenerationParams(sampling=SamplingParams(temperature=0.7), max_tokens=30)
        plain, _ = generate(b"a question", params, None, seed=seed)
        guessed, _ = generate(b"a question", params, ModelDrafter(draft), seed=seed)
        assert guessed.text == plain.text


def test_a_draft_that_costs_more_than_it_saves_is_given_up_however_good_it_is() -> None:
    governor = SpeculationGovernor()
    governor.observe(1, 1.0)
    n_guessed = 0
    for _ in range(200):
        if size := governor.size():
            n_guessed += size
            governor.observe_draft(size, 1.5 * size)
            governor.learn(size, size)
            governor.observe(size + 1, 2.3)
        governor.observe(1, 1.0)
    assert n_guessed < 40
