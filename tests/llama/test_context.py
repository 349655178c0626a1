"""Decoding, memory and samplers on the real small model."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from localrun.engine.ports import Decoded, Span
from localrun.errors import (
    DoesNotFitError,
    EngineError,
    InterruptedByUserError,
    ModelLoadError,
    NonFiniteLogitsError,
    UsageError,
)
from localrun.gguf import read_header
from localrun.llama.context import LlamaContext
from localrun.llama.model import LlamaModel
from localrun.llama.state import UnknownLayoutError, parse
from localrun.params import SamplingParams

pytestmark = pytest.mark.model
Make = Callable[..., LlamaContext]
GREEDY = SamplingParams(temperature=0)


def continue_greedily(context: LlamaContext, prompt: list[int], n: int, *, seq: int = 0, chunk: int = 256) -> list[int]:
    """The next `n` tokens after `prompt` in an empty sequence."""
    for start in range(0, len(prompt), chunk):
        part = prompt[start : start + chunk]
        assert context.decode([Span(seq, start, part, "last")]) is Decoded.OK
    row = (len(prompt) - 1) % chunk
    sampler = context.sampler(GREEDY, 0, [])
    tokens = []
    for position in range(len(prompt), len(prompt) + n):
        tokens.append(sampler.sample(row))
        assert context.decode([Span(seq, position, [tokens[-1]], "last")]) is Decoded.OK
        row = 0
    return tokens


def test_the_model_knows_a_capital(context: Make, model: LlamaModel) -> None:
    ids = model.vocabulary.encode(b"The capital of France is")
    assert model.vocabulary.decode(continue_greedily(context(), ids, 2)).startswith(b" Paris")


def test_chunks_of_any_size_give_the_same_tokens(context: Make, model: LlamaModel) -> None:
    ids = model.vocabulary.encode(b"Once upon a time, in a land far away, there lived a fox who " * 4)
    whole = continue_greedily(context(), ids, 12)
    assert continue_greedily(context(), ids, 12, chunk=7) == whole


def test_a_context_that_grows_goes_on_as_if_it_had_been_large(context: Make, model: LlamaModel) -> None:
    ids = model.vocabulary.encode(b"Count: one, two, three, four,")
    large = continue_greedily(context(), ids, 280)
    growing = context(n_cells_start=256)
    assert continue_greedily(growing, ids, 280) == large
    assert growing.n_cells_taken == 512


def test_growing_keeps_shared_cells_shared(context: Make, model: LlamaModel) -> None:
    ids = model.vocabulary.encode(b"A prefix that two sequences share. " * 30)
    small = context(n_cells_start=256, n_cells=1024, n_ctx_seq=1024)
    shared = ids[:80]
    small.decode([Span(0, 0, shared, "none")])
    small.copy(0, 1, 0, len(shared))
    for i in range(20):
        small.decode([Span(0, 80 + i, [ids[i]], "none"), Span(1, 80 + i, [ids[i + 1]], "none")])
    rest = ids[:140]
    assert small.decode([Span(0, 100, rest, "last")]) is Decoded.OK
    assert small.n_cells_taken == 512
    assert (small.first_position(1), small.last_position(1)) == (0, 99)


def test_a_full_memory_is_an_answer_and_changes_nothing(context: Make, model: LlamaModel) -> None:
    small = context(n_ctx_seq=256, n_cells=256, n_cells_start=256)
    ids = model.vocabulary.encode(b"word " * 200)
    assert small.decode([Span(0, 0, ids[:200], "last")]) is Decoded.OK
    assert small.decode([Span(1, 0, ids[:100], "last")]) is Decoded.NO_ROOM
    assert small.last_position(0) == 199
    assert small.last_position(1) == -1


def test_an_abort_ends_a_decode_and_the_next_one_works(context: Make, model: LlamaModel) -> None:
    made = context()
    ids = model.vocabulary.encode(b"one two three")
    made.abort()
    assert made.decode([Span(0, 0, ids, "last")]) is Decoded.ABORTED
    made.clear_abort()
    start = made.last_position(0) + 1
    assert made.decode([Span(0, start, ids[start:], "last")]) is Decoded.OK


@pytest.mark.parametrize("flash", [False, True])
def test_restored_blocks_go_on_bit_for_bit(flash: bool, context: Make, model: LlamaModel) -> None:
    # Into a fresh context: beside other sequences the cells lie elsewhere, and the CPU kernels round differently.
    made = context(flash_attention=flash, n_ubatch=64)
    ids = model.vocabulary.encode(b"The three primary colours are red, yellow and blue. " * 30)[:150]
    made.decode([Span(0, 0, ids, "last")])
    blocks = made.save_blocks(0, 0, 128, 32)
    assert len(blocks) == 4
    # Two micro-batches of 64: with flash attention the kernels' rounding depends on how a prompt is cut.
    for n_blocks in (2, 4):
        kept, rest = ids[: 32 * n_blocks], ids[32 * n_blocks :]
        undisturbed, restored = (context(flash_attention=flash, n_ubatch=64) for _ in range(2))
        undisturbed.decode([Span(1, 0, kept, "none")])
        assert restored.restore_blocks(1, 0, blocks[:n_blocks]) == len(kept)
        for each in (undisturbed, restored):
            each.decode([Span(1, len(kept), rest, "last")])
        assert np.array_equal(restored.logits(len(rest) - 1), undisturbed.logits(len(rest) - 1))


def test_the_last_block_is_restored_up_to_any_token(context: Make, model: LlamaModel) -> None:
    made = context()
    ids = model.vocabulary.encode(b"The three primary colours are red, yellow and blue. " * 30)[:150]
    made.decode([Span(0, 0, ids, "last")])
    blocks = made.save_blocks(0, 0, 128, 32)
    for stop in (33, 64, 95):
        undisturbed, restored = context(), context()
        undisturbed.decode([Span(1, 0, ids[:stop], "none")])
        assert restored.restore_blocks(1, 0, blocks[: -(-stop // 32)], stop) == stop
        assert restored.last_position(1) == stop - 1
        for each in (undisturbed, restored):
            each.decode([Span(1, stop, ids[stop:], "last")])
        assert np.array_equal(restored.logits(149 - stop), undisturbed.logits(149 - stop))


def test_a_block_is_in_order_wherever_its_cells_lay(context: Make, model: LlamaModel) -> None:
    ids = model.vocabulary.encode(b"one two three four five six seven eight nine ten " * 20)[:64]
    alone, scattered = context(n_cells=256), context(n_cells=256)
    alone.decode([Span(0, 0, ids, "none")])
    scattered.decode([Span(1, 0, ids, "none")])
    scattered.decode([Span(0, 0, ids[:32], "none")])
    scattered.remove(1, 0, -1)
    while scattered.last_position(0) < 63:  # the later cells go around the end of the memory, to where there was room
        scattered.decode([Span(1, 0, ids * 2, "none")])
        scattered.remove(1, 0, -1)
        at = scattered.last_position(0) + 1
        scattered.decode([Span(0, at, ids[at : at + 8], "none")])
    (block,) = scattered.save_blocks(0, 0, 64, 64)
    (section,) = parse(block)
    assert section.positions == list(range(64))
    assert alone.restore_blocks(1, 0, [block]) == 64
    assert alone.last_position(1) == 63


def test_blocks_saved_in_pieces_are_those_saved_at_once(context: Make, model: LlamaModel) -> None:
    made = context()
    ids = model.vocabulary.encode(b"one two three four five six seven eight nine ten " * 20)[:96]
    made.decode([Span(0, 0, ids, "none")])
    assert made.save_blocks(0, 0, 96, 32) == [
        *made.save_blocks(0, 0, 32, 32), *made.save_blocks(0, 32, 96, 32)
    ]  # fmt: skip


def test_what_is_no_block_of_these_positions_is_refused_and_leaves_the_sequence_empty(
    context: Make, model: LlamaModel
) -> None:
    made = context()
    made.decode([Span(0, 0, model.vocabulary.encode(b"word " * 64)[:64], "none")])
    first, second = made.save_blocks(0, 0, 64, 32)
    for blocks in ([first[: len(first) // 2]], [b""], [second], [first, first], [first, b"x" * 8]):
        with pytest.raises(UnknownLayoutError):
            made.restore_blocks(1, 0, blocks)
        assert made.last_position(1) == -1


def test_a_seed_gives_the_same_tokens_and_another_seed_others(context: Make, model: LlamaModel) -> None:
    made = context()
    ids = model.vocabulary.encode(b"My favourite")
    made.decode([Span(0, 0, ids, "last")])

    def draw(seed: int) -> list[int]:
        sampler = made.sampler(SamplingParams(temperature=1.5, top_k=0, top_p=1, min_p=0), seed, [])
        return [sampler.sample(len(ids) - 1) for _ in range(20)]

    assert draw(7) == draw(7) != draw(8)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1e-9),
        SamplingParams(top_k=-1),
        SamplingParams(top_k=10**9),
        SamplingParams(top_p=0),
        SamplingParams(min_p=1),
        SamplingParams(typical_p=0.5),
        SamplingParams(top_n_sigma=1.0),
        SamplingParams(xtc_probability=0.5),
        SamplingParams(dry_multiplier=0.8),
        SamplingParams(repeat_penalty=1.3, frequency_penalty=0.5, presence_penalty=0.5),
        SamplingParams(mirostat=1),
        SamplingParams(mirostat=2),
        SamplingParams(order=("temperature", "top_k")),
        SamplingParams(order=()),
    ],
    ids=str,
)
def test_every_sampler_chooses_a_token_of_the_vocabulary(
    params: SamplingParams, context: Make, model: LlamaModel
) -> None:
    made = context()
    ids = model.vocabulary.encode(b"The weather today is")
    made.decode([Span(0, 0, ids, "last")])
    sampler = made.sampler(params, 3, [])
    for token in ids:
        sampler.accept(token)
    for _ in range(5):
        assert 0 <= sampler.sample(len(ids) - 1) < model.vocabulary.n_tokens


def test_a_top_p_of_zero_keeps_one_token(context: Make, model: LlamaModel) -> None:
    made = context()
    ids = model.vocabulary.encode(b"The capital of France is")
    made.decode([Span(0, 0, ids, "last")])
    best = made.sampler(GREEDY, 0, []).sample(len(ids) - 1)
    sampler = made.sampler(SamplingParams(top_p=0, temperature=2.0), 5, [])
    assert {sampler.sample(len(ids) - 1) for _ in range(10)} == {best}


def test_a_banned_token_never_comes(context: Make, model: LlamaModel) -> None:
    made = context()
    ids = model.vocabulary.encode(b"The capital of France is")
    made.decode([Span(0, 0, ids, "last")])
    best = made.sampler(GREEDY, 0, []).sample(len(ids) - 1)
    biased = SamplingParams(temperature=0, logit_bias=((best, -math.inf),))
    assert made.sampler(biased, 0, []).sample(len(ids) - 1) != best


@pytest.mark.parametrize("token", [49152, 2**31 - 1])
def test_a_bias_outside_the_vocabulary_is_a_usage_error(token: int, context: Make) -> None:
    with pytest.raises(UsageError, match=f"{token}.*49,152"):
        context().sampler(SamplingParams(logit_bias=((token, 1.0),)), 0, [])


def test_banning_everything_is_an_error_and_not_token_zero(context: Make, model: LlamaModel) -> None:
    made = context()
    made.decode([Span(0, 0, model.vocabulary.encode(b"Hello"), "last")])
    with pytest.raises(EngineError, match="banned"):
        made.sampler(GREEDY, 0, range(model.vocabulary.n_tokens)).sample(0)


@pytest.mark.parametrize(
    ("tensor", "value"), [("blk.0.attn_norm.weight", b"\x00\x00\x80\x7f"), ("token_embd.weight", b"\x00\x7c\x00\x7c")]
)
def test_weights_that_are_not_finite_end_in_a_clear_error(
    tensor: str, value: bytes, smollm2: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.gguf"
    data = bytearray(smollm2.read_bytes())
    header = read_header(smollm2)
    offset = next(info.offset for info in header.tensors if info.name == tensor)
    data[offset : offset + 4] = value
    broken.write_bytes(data)
    loaded = LlamaModel.load(broken)
    from localrun.llama.context import ContextOptions

    options = ContextOptions(
        n_ctx_seq=64, n_cells=256, n_cells_start=256, n_seq_max=1, n_batch=64, n_ubatch=64, threads=1, threads_prefill=1
    )
    made = LlamaContext(loaded, options)
    try:
        made.decode([Span(0, 0, [0, 1, 2], "last")])
        for params in (GREEDY, SamplingParams()):
            with pytest.raises(NonFiniteLogitsError):
                made.sampler(params, 0, []).sample(2)
    finally:
        made.close()
        loaded.close()


def test_closing_twice_is_closing_once(smollm2: Path) -> None:
    loaded = LlamaModel.load(smollm2, vocab_only=True)
    loaded.close()
    loaded.close()


def test_a_load_that_is_stopped_is_not_a_failure_of_the_file(smollm2: Path) -> None:
    with pytest.raises(InterruptedByUserError):
        LlamaModel.load(smollm2, progress=lambda fraction: False)


def test_a_file_that_the_engine_refuses_says_why(tmp_path: Path, smollm2: Path) -> None:
    half = tmp_path / "half.gguf"
    half.write_bytes(smollm2.read_bytes()[: 1 << 20])
    with pytest.raises(ModelLoadError, match=r"half\.gguf"):
        LlamaModel.load(half)


def test_rows_without_logits_are_refused(context: Make, model: LlamaModel) -> None:
    made = context()
    made.decode([Span(0, 0, [1, 2, 3], "last")])
    with pytest.raises(EngineError, match="no logits"):
        made.logits(0)


def test_a_context_that_memory_cannot_hold_is_said_so(context: Make) -> None:
    with pytest.raises(DoesNotFitError, match="context"):
        context(n_ctx_seq=2**31 - 1, n_cells=2**31 - 1, n_cells_start=2**31 - 1)
