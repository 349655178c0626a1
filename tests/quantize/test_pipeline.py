"""The pass writes what llama.cpp writes, whatever interrupts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType, GGUFValueType

from quantize import pipeline
from quantize.blocks import PlainSearch
from quantize.errors import DestinationError, NoSpaceError, WeightError
from quantize.journal import Journal, journal_path
from quantize.model import MetadataValue, Model, Rows
from quantize.plan import Plan, make_plan
from quantize.recipe import Recipe, parse_override
from quantize.types import parse_mix
from quantize.writer import PartialFile, partial_path
from tests.quantize.oracle import llama_quantize
from tests.quantize.synthetic import llama, read_metadata, read_tensors, tensor

EVEN = llama(tied=False)
ODD = llama(embd=96, ff=352, heads=3, kv_heads=1)
EXPERTS = llama(n_expert=4, embd=256, ff=256, n_layer=1)
HUNDRED = llama(embd=100, ff=172, heads=4, kv_heads=4, n_layer=1)
MODELS = {"even": EVEN, "odd": ODD, "experts": EXPERTS, "hundred": HUNDRED}


def write(model: Model, mix: str, path: Path, *, threads: int = 2, pure: bool = False) -> Plan:
    plan = make_plan(model, Recipe(parse_mix(mix), pure=pure), path, matrix_names=None)
    pipeline.run(plan, PlainSearch(), fingerprint="same", threads=threads)
    pipeline.finish(plan)
    return plan


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("sources")
    for name, model in MODELS.items():
        write(model, "f32", folder / f"{name}.gguf")
    return {name: folder / f"{name}.gguf" for name in MODELS}


Sources = dict[str, Path]

MIXES = [
    "q4_k_m",
    "q4_k_s",
    "q5_k_m",
    "q3_k_m",
    "q2_k",
    "q6_k",
    "q8_0",
    "q4_0",
    "q5_1",
    "iq4_xs",
    "iq4_nl",
    "f16",
    "bf16",
]


SAME = [
    *(("even", mix) for mix in [*MIXES, "f16", "bf16", "tq2_0"]),
    *(("odd", mix) for mix in ("q4_k_m", "q3_k_m", "q2_k", "q6_k", "q5_0", "iq4_xs", "f16")),
    *(("experts", mix) for mix in ("q4_k_m", "q8_0", "mxfp4_moe")),
    *(("hundred", mix) for mix in ("q4_0", "q8_0", "q4_k_m", "q6_k")),
]


@pytest.mark.parametrize(("name", "mix"), SAME)
def test_tensor_data_equals_that_of_llama_quantize(
    name: str, mix: str, sources: dict[str, Path], tmp_path: Path
) -> None:
    write(MODELS[name], mix, tmp_path / "ours.gguf")
    llama_quantize(sources[name], tmp_path / "theirs.gguf", int(parse_mix(mix).file_type))
    ours, theirs = read_tensors(tmp_path / "ours.gguf"), read_tensors(tmp_path / "theirs.gguf")
    assert {key: value[0] for key, value in ours.items()} == {key: value[0] for key, value in theirs.items()}
    assert ours == theirs
    assert read_metadata(tmp_path / "ours.gguf")["general.file_type"] == int(parse_mix(mix).file_type)


def test_pure_data_equals_that_of_llama_quantize(sources: dict[str, Path], tmp_path: Path) -> None:
    write(EVEN, "q4_k_m", tmp_path / "ours.gguf", pure=True)
    llama_quantize(sources["even"], tmp_path / "theirs.gguf", int(parse_mix("q4_k_m").file_type), pure=True)
    assert read_tensors(tmp_path / "ours.gguf") == read_tensors(tmp_path / "theirs.gguf")


def test_metadata_survives_and_says_how_the_file_was_made(tmp_path: Path) -> None:
    write(EVEN, "q4_0", tmp_path / "out.gguf")
    found = read_metadata(tmp_path / "out.gguf")
    expected = {
        key: value.value for key, value in EVEN.metadata.items() if key != "llama.attention.layer_norm_rms_epsilon"
    }
    assert {key: found[key] for key in expected} == expected
    assert found["general.quantization_version"] == 2
    assert found["localrun.quantize.recipe"] == "q4_0"


def test_the_number_of_threads_does_not_change_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pipeline, "SLAB_VALUES", 4096)
    write(EVEN, "q4_k_m", tmp_path / "one.gguf", threads=1)
    write(EVEN, "q4_k_m", tmp_path / "four.gguf", threads=4)
    assert (tmp_path / "one.gguf").read_bytes() == (tmp_path / "four.gguf").read_bytes()


def test_slabs_respect_the_row_ranges_that_a_tensor_can_be_read_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pipeline, "SLAB_VALUES", 1024)
    asked: list[tuple[int, int]] = []
    whole = EVEN.tensors[0]

    def read(start: int, stop: int) -> Rows:
        asked.append((start, stop))
        return whole.read(start, stop)

    model = replace(EVEN, tensors=(replace(whole, read=read, row_multiple=43), *EVEN.tensors[1:]))
    write(model, "q8_0", tmp_path / "out.gguf", threads=1)
    assert asked == [(start, start + 43) for start in range(0, 258, 43)]


class StoppedError(Exception):
    """Stands for whatever stops a run."""


def failing_after(model: Model, reads: int) -> Model:
    left = [reads]

    def wrap(read: object) -> object:
        def inner(start: int, stop: int) -> Rows:
            left[0] -= 1
            if left[0] < 0:
                raise StoppedError
            return read(start, stop)  # type: ignore[operator]

        return inner

    return replace(model, tensors=tuple(replace(t, read=wrap(t.read)) for t in model.tensors))  # type: ignore[arg-type]


def test_a_stopped_run_goes_on_and_gives_the_identical_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pipeline, "SLAB_VALUES", 8192)
    write(EVEN, "q5_0", tmp_path / "whole.gguf")
    out = tmp_path / "out.gguf"
    with pytest.raises(StoppedError):
        write(failing_after(EVEN, 60), "q5_0", out, threads=1)
    assert not out.exists()
    assert partial_path(out).exists()
    plan = make_plan(EVEN, Recipe(parse_mix("q5_0")), out, matrix_names=None)
    result = pipeline.run(plan, PlainSearch(), fingerprint="same", threads=2)
    pipeline.finish(plan)
    assert result.resumed >= 60
    assert out.read_bytes() == (tmp_path / "whole.gguf").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.gguf", "whole.gguf"]


@pytest.mark.parametrize("change", ["recipe", "source"])
def test_an_unfinished_run_of_something_else_is_not_continued(change: str, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    with pytest.raises(StoppedError):
        write(failing_after(EVEN, 5), "q5_0", out, threads=1)
    plan = make_plan(EVEN, Recipe(parse_mix("q4_0" if change == "recipe" else "q5_0")), out, matrix_names=None)
    result = pipeline.run(plan, PlainSearch(), fingerprint="same" if change == "recipe" else "other", threads=1)
    assert result.resumed == 0


KILLED = """
import sys, time
from pathlib import Path
from dataclasses import replace
from quantize import pipeline
from tests.quantize.test_pipeline import EVEN, write
pipeline.SLAB_VALUES = 8192
pipeline._SYNC_SECONDS = 0.0
reads = [0]
def slow(read):
    def inner(start, stop):
        reads[0] += 1
        if reads[0] == 40:
            print("half", flush=True)
            time.sleep(60)
        return read(start, stop)
    return inner
model = replace(EVEN, tensors=tuple(replace(t, read=slow(t.read)) for t in EVEN.tensors))
write(model, "q4_k_m", Path(sys.argv[1]), threads=1)
"""


def test_a_killed_process_loses_only_what_it_had_in_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(out)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"half\n"
    notes = journal_path(partial_path(out))
    for _ in range(200):
        if notes.read_text().count("\n") > 38:
            break
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert not out.exists()
    monkeypatch.setattr(pipeline, "SLAB_VALUES", 8192)
    plan = make_plan(EVEN, Recipe(parse_mix("q4_k_m")), out, matrix_names=None)
    result = pipeline.run(plan, PlainSearch(), fingerprint="same", threads=2)
    pipeline.finish(plan)
    assert result.resumed >= 35
    write(EVEN, "q4_k_m", tmp_path / "whole.gguf")
    assert out.read_bytes() == (tmp_path / "whole.gguf").read_bytes()


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    plan = make_plan(EVEN, Recipe(parse_mix("q8_0")), out, matrix_names=None)
    held = Journal(journal_path(partial_path(out)), "x")
    try:
        with pytest.raises(DestinationError, match="another process is writing"):
            pipeline.run(plan, PlainSearch(), fingerprint="same", threads=1)
    finally:
        held.close()


@pytest.mark.parametrize(
    ("value", "what"), [(np.nan, "NaN"), (np.inf, "an infinite value"), (-np.inf, "an infinite value")]
)
@pytest.mark.parametrize("mix", ["q4_k_m", "q8_0", "f16", "f32"])
def test_a_weight_that_is_no_number_names_its_tensor(mix: str, value: float, what: str, tmp_path: Path) -> None:
    bad = np.zeros((64, 256), np.float32)
    bad[63, 255] = value
    tensors = tuple(tensor(t.name, bad) if t.name == "blk.1.attn_k.weight" else t for t in llama(kv_heads=1).tensors)
    model = replace(llama(kv_heads=1), tensors=tensors)
    with pytest.raises(WeightError, match=r"blk\.1\.attn_k\.weight") as caught:
        write(model, mix, tmp_path / "out.gguf")
    assert what in caught.value.message or mix == "f32"
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize("mix", ["f16", "q8_0", "q4_k_m"])
def test_a_weight_that_overflows_its_type_names_its_tensor(mix: str, tmp_path: Path) -> None:
    big = np.full((64, 256), 3e8, np.float32)
    model = llama(kv_heads=1)
    model = replace(model, tensors=tuple(tensor(t.name, big) if "attn_k." in t.name else t for t in model.tensors))
    with pytest.raises(WeightError, match=r"attn_k\.weight .*overflows"):
        write(model, mix, tmp_path / "out.gguf")


def test_a_full_disk_is_found_before_a_weight_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_space(fd: int, offset: int, length: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_space)
    with pytest.raises(NoSpaceError, match="no space left for"):
        write(failing_after(EVEN, 0), "q8_0", tmp_path / "out.gguf")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_keeps_what_was_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pipeline, "SLAB_VALUES", 8192)
    real, left = os.pwrite, [30]

    def filling(fd: int, data: bytes, offset: int) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", filling)
    with pytest.raises(NoSpaceError, match="no space left"):
        write(EVEN, "q5_0", tmp_path / "out.gguf", threads=1)
    assert not (tmp_path / "out.gguf").exists()
    monkeypatch.setattr(os, "pwrite", real)
    plan = make_plan(EVEN, Recipe(parse_mix("q5_0")), tmp_path / "out.gguf", matrix_names=None)
    assert pipeline.run(plan, PlainSearch(), fingerprint="same", threads=1).resumed == 29


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match="absent"):
        write(EVEN, "q8_0", tmp_path / "absent" / "out.gguf")


def test_split_files_are_loaded_by_llama_cpp_as_one_model(tmp_path: Path, sources: dict[str, Path]) -> None:
    plan = make_plan(EVEN, Recipe(parse_mix("q8_0")), tmp_path / "out.gguf", matrix_names=None, split_bytes=300_000)
    pipeline.run(plan, PlainSearch(), fingerprint="x", threads=2)
    pipeline.finish(plan)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) > 2
    assert names[0] == f"out-00001-of-{len(names):05d}.gguf"
    llama_quantize(tmp_path / names[0], tmp_path / "joined.gguf", int(parse_mix("q8_0").file_type))
    llama_quantize(sources["even"], tmp_path / "theirs.gguf", int(parse_mix("q8_0").file_type))
    assert read_tensors(tmp_path / "joined.gguf") == read_tensors(tmp_path / "theirs.gguf")


def test_forced_types_reach_the_file(tmp_path: Path) -> None:
    recipe = Recipe(parse_mix("q4_0"), (parse_override("attn_v=q6_k"),))
    plan = make_plan(EVEN, recipe, tmp_path / "out.gguf", matrix_names=None)
    pipeline.run(plan, PlainSearch(), fingerprint="x", threads=1)
    pipeline.finish(plan)
    found = read_tensors(tmp_path / "out.gguf")
    assert {name for name, (kind, _) in found.items() if kind == "Q6_K"} == {
        "output.weight",
        "blk.0.attn_v.weight",
        "blk.1.attn_v.weight",
    }


def test_a_value_that_its_metadata_type_cannot_hold_is_named(tmp_path: Path) -> None:
    model = replace(EVEN, metadata=EVEN.metadata | {"llama.bad": MetadataValue(-1, GGUFValueType.UINT32)})
    with pytest.raises(DestinationError, match=r"llama\.bad"):
        make_plan(model, Recipe(parse_mix("q4_0")), tmp_path / "out.gguf", matrix_names=None)


def test_a_partial_file_keeps_what_was_written(tmp_path: Path) -> None:
    first = PartialFile(tmp_path / "x", 100)
    first.write_at(90, b"0123456789")
    first.close()
    again = PartialFile(tmp_path / "x", 100)
    assert again.was_complete_size
    assert again.read_at(90, 10) == b"0123456789"
    again.finish()
    assert (tmp_path / "x").stat().st_size == 100


def test_tensors_kept_in_their_type_are_copied(tmp_path: Path) -> None:
    model = EVEN
    raw = np.random.default_rng(1).integers(0, 120, (2 * 64, 136), dtype=np.uint8)

    def read(start: int, stop: int) -> Rows:
        raise AssertionError("kept tensors are not decoded")

    kept = replace(
        model.tensors[0],
        name="blk.0.ffn_up_exps.weight",
        shape=(2, 64, 256),
        read=read,
        read_raw=lambda start, stop: raw[start:stop],
        keep_type=GGMLQuantizationType.MXFP4,
    )
    write(replace(model, tensors=(kept, *model.tensors)), "q4_k_m", tmp_path / "out.gguf")
    assert read_tensors(tmp_path / "out.gguf")["blk.0.ffn_up_exps.weight"] == ("MXFP4", raw.tobytes())
