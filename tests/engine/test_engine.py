"""What the engine promises, on a model of bytes."""

from __future__ import annotations

import pytest

from localrun.engine.engine import Engine
from localrun.errors import ContextOverflowError, EngineError
from localrun.params import GenerationParams, OverflowPolicy, SamplingParams
from tests.engine.driver import GREEDY, Listener, make, run
from tests.fakes import EOG, FakeBackend


def alone(prompt: bytes, params: GenerationParams | None = None, seed: int = 1, **options: object) -> str:
    """The text of one sequence on a fresh backend: what every other way of running it must give."""
    sequence, listener = make(prompt, params, seed=seed)
    run(Engine(FakeBackend(**options), n_parallel=1), sequence)  # type: ignore[arg-type]
    return listener.text


def test_a_batch_says_what_each_sequence_says_alone() -> None:
    prompts = [b"system: be brief. " + bytes([65 + i]) * (3 * i + 1) for i in range(8)]
    engine = Engine(FakeBackend(), n_parallel=4)
    pairs = [make(prompt, seed=i) for i, prompt in enumerate(prompts)]
    run(engine, *(sequence for sequence, _ in pairs))
    assert [listener.text for _, listener in pairs] == [alone(p, seed=i) for i, p in enumerate(prompts)]


def test_sampling_with_a_seed_does_not_depend_on_the_batch() -> None:
    params = GenerationParams(sampling=SamplingParams(temperature=1.0), max_tokens=20)
    engine = Engine(FakeBackend(), n_parallel=4)
    pairs = [make(b"tell me", params, seed=i) for i in range(4)]
    run(engine, *(sequence for sequence, _ in pairs))
    texts = [listener.text for _, listener in pairs]
    assert texts == [alone(b"tell me", params, seed=i) for i in range(4)]
    assert len(set(texts)) == 4


def test_a_prompt_in_chunks_gives_the_text_of_a_prompt_in_one() -> None:
    prompt = bytes(range(33, 120))
    sequence, listener = make(prompt)
    run(Engine(FakeBackend(), n_parallel=1, n_chunk=7), sequence)
    assert listener.text == alone(prompt)
    assert [p.done for p in listener.progress[:3]] == [0, 7, 14]


@pytest.mark.parametrize("kind", ["full", "window", "state"])
def test_a_second_run_reuses_the_prefix_and_says_the_same(kind: str) -> None:
    options = {"memory_kind": kind, "n_window": 16 if kind == "window" else 0}
    backend = FakeBackend(**options)  # type: ignore[arg-type]
    engine = Engine(backend, n_parallel=1)
    document = b"a long document that is read twice. "
    for question in (b"what?", b"why?", b"what?", b"what? and then"):
        sequence, listener = make(document + question)
        run(engine, sequence)
        assert listener.text == alone(document + question, None, **options)


def test_an_identical_prompt_computes_its_last_piece_again_and_no_more() -> None:
    backend = FakeBackend()
    engine = Engine(backend, n_parallel=1)
    prompt = b"the very same prompt twice over."
    for _ in range(2):
        sequence, listener = make(prompt)
        run(engine, sequence)
    assert listener.finished.n_cached_ram == len(prompt) - backend.n_tail
    assert listener.text == alone(prompt)


def test_a_prompt_that_is_a_prefix_of_a_cached_one_says_what_it_says_cold() -> None:
    engine = Engine(FakeBackend(), n_parallel=1)
    run(engine, make(b"one two three four five six seven")[0])
    sequence, listener = make(b"one two three four five ")
    run(engine, sequence)
    assert listener.text == alone(b"one two three four five ")
    assert listener.finished.n_cached_ram == len(b"one two three four five ") - 8


def test_a_conversation_continues_without_computing_its_history_again() -> None:
    backend = FakeBackend()
    engine = Engine(backend, n_parallel=1)
    sequence, listener = make(b"hello")
    run(engine, sequence)
    longer = b"hello" + listener.text.encode() + b" and now?"
    sequence, listener = make(longer)
    run(engine, sequence)
    assert listener.finished.n_cached_ram == 16  # of 5 + 15 computed, whole groups of rows
    assert listener.text == alone(longer)


def test_a_window_that_has_lost_its_beginning_is_not_reused() -> None:
    backend = FakeBackend(memory_kind="window", n_window=8)
    engine = Engine(backend, n_parallel=1)
    run(engine, make(b"abcdefghijklmnopqrstuvwxyz")[0])
    sequence, listener = make(b"abcdefghijklmnop-other")
    run(engine, sequence)
    assert listener.finished.n_cached_ram == 0
    assert listener.text == alone(b"abcdefghijklmnop-other", None, memory_kind="window", n_window=8)


def test_sequences_that_arrive_together_compute_their_common_prefix_once() -> None:
    backend = FakeBackend(n_batch=256)
    engine = Engine(backend, n_parallel=4)
    system = b"S" * 100
    pairs = [make(system + bytes([65 + i]) * 5) for i in range(4)]
    run(engine, *(sequence for sequence, _ in pairs))
    computed = sum(len(span.tokens) for spans in backend.decodes for span in spans if span.start < 100)
    assert computed <= 105 + 3 * (105 - 96)  # whole groups of rows are shared
    assert [listener.finished.n_cached_ram for _, listener in pairs] == [0, 96, 96, 96]


def test_an_end_of_generation_token_ends_the_text_and_is_not_in_it() -> None:
    backend = FakeBackend()
    backend.script[b"question"] = b"answer"
    sequence, listener = make(b"question")
    run(Engine(backend, n_parallel=1), sequence)
    assert listener.text == "answer"
    assert listener.finished.reason == "stop"
    assert EOG not in listener.finished.tokens


def test_ignoring_the_end_gives_exactly_the_tokens_asked_for() -> None:
    backend = FakeBackend()
    backend.script[b"question"] = b"answer"
    params = GenerationParams(sampling=GREEDY, max_tokens=20, ignore_eos=True)
    sequence, listener = make(b"question", params)
    run(Engine(backend, n_parallel=1), sequence)
    assert len(listener.finished.tokens) == 20
    assert EOG not in listener.finished.tokens


@pytest.mark.parametrize(
    ("answer", "stops", "text", "stop"),
    [
        (b"ABCDEFGHIJK", ("DEFGHIJ",), "ABC", "DEFGHIJ"),
        (b"ABCDEFGHIX", ("DEFGHIJ",), "ABCDEFGHIX", None),
        ("hi 🙂 you".encode(), ("🙂",), "hi ", "🙂"),
        (b"STOP here", ("STOP",), "", "STOP"),
    ],
)
def test_stop_strings_end_the_text_before_them(
    answer: bytes, stops: tuple[str, ...], text: str, stop: str | None
) -> None:
    backend = FakeBackend()
    backend.script[b"?"] = answer
    sequence, listener = make(b"?", GenerationParams(sampling=GREEDY, stop=stops))
    run(Engine(backend, n_parallel=1), sequence)
    assert (listener.text, sequence.output.stopped) == (text, stop)
    assert listener.finished.reason == ("stop_string" if stop else "stop")


def test_zero_tokens_is_an_empty_answer_that_computes_nothing() -> None:
    backend = FakeBackend()
    sequence, listener = make(b"hello", GenerationParams(sampling=GREEDY, max_tokens=0))
    run(Engine(backend, n_parallel=1), sequence)
    assert listener.finished.reason == "length"
    assert not backend.decodes


@pytest.mark.parametrize(("n_prompt", "reason"), [(62, "context"), (63, "context"), (64, "context")])
def test_an_answer_ends_where_the_context_ends(n_prompt: int, reason: str) -> None:
    sequence, listener = make(b"x" * n_prompt, GenerationParams(sampling=GREEDY))
    run(Engine(FakeBackend(n_ctx_seq=64), n_parallel=1), sequence)
    assert listener.finished.reason == reason
    assert len(listener.finished.tokens) == 64 - n_prompt + 1


def test_a_prompt_longer_than_the_context_is_an_error_with_both_numbers() -> None:
    sequence, listener = make(b"x" * 65)
    run(Engine(FakeBackend(n_ctx_seq=64), n_parallel=1), sequence)
    assert isinstance(listener.error, ContextOverflowError)
    assert "65" in str(listener.error)
    assert "64" in str(listener.error)


def test_truncating_the_middle_keeps_both_ends_and_says_what_is_missing() -> None:
    params = GenerationParams(sampling=GREEDY, max_tokens=8, on_overflow=OverflowPolicy.TRUNCATE_MIDDLE)
    sequence, listener = make(b"BEGIN" + b"x" * 100 + b"END", params)
    run(Engine(FakeBackend(n_ctx_seq=64), n_parallel=1), sequence)
    assert listener.notices == ["prompt_truncated"]
    assert bytes(sequence.tokens).startswith(b"BEGIN")
    assert b"END" in bytes(sequence.tokens)
    assert len(listener.finished.tokens) == 8


@pytest.mark.parametrize("kind", ["full", "state"])
def test_shifting_goes_on_for_ever_keeps_the_beginning_and_says_so_once(kind: str) -> None:
    params = GenerationParams(sampling=GREEDY, max_tokens=300, on_overflow=OverflowPolicy.SHIFT)
    backend = FakeBackend(n_ctx_seq=64, memory_kind=kind)  # type: ignore[arg-type]
    sequence, listener = make(b"BEGINNING", params)
    run(Engine(backend, n_parallel=1), sequence)
    assert sequence.n_generated == 300
    assert listener.notices == ["context_shifted"]
    assert bytes(sequence.tokens[:9]) == b"BEGINNING"


def test_a_shift_leaves_the_cached_prefixes_of_others_intact() -> None:
    backend = FakeBackend(n_ctx_seq=64, n_cells=256)
    engine = Engine(backend, n_parallel=2)
    params = GenerationParams(sampling=GREEDY, max_tokens=150, on_overflow=OverflowPolicy.SHIFT)
    shared = b"the same beginning of thirty-two"
    run(engine, make(shared + b"!")[0])
    shifting, _ = make(shared + b"?", params)
    beside, listener = make(shared + b"#", GenerationParams(sampling=GREEDY, max_tokens=30))
    run(engine, shifting, beside)
    assert listener.text == alone(shared + b"#", GenerationParams(sampling=GREEDY, max_tokens=30))
    sequence, listener = make(shared + b"!")
    run(engine, sequence)
    assert listener.text == alone(shared + b"!")


def test_a_cancelled_sequence_keeps_its_text_and_leaves_the_others_alone() -> None:
    engine = Engine(FakeBackend(), n_parallel=2)
    first, heard = make(b"first", GenerationParams(sampling=GREEDY))
    second, other = make(b"second")
    engine.submit(first)
    engine.submit(second)
    for _ in range(5):
        engine.step()
    first.cancelled = True
    run(engine)
    assert heard.finished.reason == "interrupted"
    assert heard.text == alone(b"first")[: len(heard.text)] != ""
    assert other.text == alone(b"second")


def test_an_aborted_decode_is_computed_again() -> None:
    backend = FakeBackend()
    backend.abort_at_decode = 4
    sequence, listener = make(b"hello")
    run(Engine(backend, n_parallel=1), sequence)
    assert listener.text == alone(b"hello")


def test_a_full_memory_drops_cached_prefixes_before_anybody_suffers() -> None:
    backend = FakeBackend(n_cells=60, n_ctx_seq=60)
    engine = Engine(backend, n_parallel=1)
    for i in range(6):
        prompt = bytes([65 + i]) * 20
        sequence, listener = make(prompt)
        run(engine, sequence)
        assert listener.text == alone(prompt)


def test_sequences_that_do_not_fit_together_take_turns() -> None:
    backend = FakeBackend(n_cells=70, n_ctx_seq=64)
    engine = Engine(backend, n_parallel=3)
    params = GenerationParams(sampling=GREEDY, max_tokens=30)
    pairs = [make(bytes([65 + i]) * 20, params) for i in range(3)]
    run(engine, *(sequence for sequence, _ in pairs))
    assert [listener.text for _, listener in pairs] == [alone(bytes([65 + i]) * 20, params) for i in range(3)]


def test_a_failing_sequence_does_not_touch_the_others() -> None:
    backend = FakeBackend()
    engine = Engine(backend, n_parallel=2)
    bad, heard = make(b"bad", GenerationParams(sampling=SamplingParams(temperature=0)))
    good, other = make(b"good")

    class Broken:
        constrained = True
        stopped = None

        def push(self, token: int, piece: bytes, control: bool) -> None:
            raise EngineError("broken")

        def finish(self) -> None:
            return None

        def forced_text(self) -> bytes:
            return b""

    bad.output = Broken()
    run(engine, bad, good)
    assert str(heard.error) == "broken"
    assert other.text == alone(b"good")
    assert backend.samplers_open == 0


def test_higher_priority_goes_first() -> None:
    engine = Engine(FakeBackend(), n_parallel=1)
    order: list[str] = []

    def add(name: str, priority: int) -> None:
        sequence, listener = make(name.encode(), GenerationParams(sampling=GREEDY, max_tokens=4, priority=priority))
        sequence.notify = lambda event, listener=listener: (  # type: ignore[misc]
            listener.events.append(event),
            order.append(name) if type(event).__name__ == "Finished" else None,
        )
        engine.submit(sequence)

    for name, priority in (("low", 0), ("high", 5), ("middle", 1)):
        add(name, priority)
    run(engine)
    assert order == ["high", "middle", "low"]


def test_every_event_stream_ends_exactly_once() -> None:
    engine = Engine(FakeBackend(eog_rate=0.1), n_parallel=3)
    listeners: list[Listener] = []
    sequences = []
    for i in range(10):
        sequence, listener = make(bytes([97 + i]) * 10)
        listeners.append(listener)
        sequences.append(sequence)
    run(engine, *sequences)
    for listener in listeners:
        ends = [e for e in listener.events if type(e).__name__ in ("Finished", "Failed")]
        assert len(ends) == 1
        assert ends[0] is listener.events[-1]


def test_a_bug_in_one_sequence_ends_that_sequence_alone() -> None:
    engine = Engine(FakeBackend(), n_parallel=2)
    broken, heard = make(b"broken")
    sound, listener = make(b"sound")

    def fail(*_: object) -> None:
        raise TypeError("a bug")

    broken.output.push = fail  # type: ignore[method-assign]
    run(engine, broken, sound)
    assert isinstance(heard.error, EngineError)
    assert "TypeError: a bug" in heard.error.message
    assert listener.text == alone(b"sound")
