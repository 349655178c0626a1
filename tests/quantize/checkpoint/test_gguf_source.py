"""A GGUF file is a source like a checkpoint: alone or split, checked before a weight is read."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType, GGUFValueType

from quantize.errors import SourceError, UnsupportedError
from quantize.ggml import quantize_rows
from quantize.metadata import Metadata, f32s, i32s, string, strings, u32
from quantize.model import MetadataValue
from quantize.source import open_source
from quantize.split import shard_metadata
from quantize.writer import TensorInfo, align, encode_header
from tests.quantize.checkpoint import tiny

Kinds = GGMLQuantizationType
KEYS: Metadata = {
    "general.architecture": string("llama"),
    "general.file_type": u32(7),
    "llama.block_count": u32(1),
    "tokenizer.ggml.tokens": strings(["a", "ü", "\udcff broken"]),
    "tokenizer.ggml.scores": f32s([1.5, -2.0]),
    "tokenizer.ggml.token_type": i32s([1, 2, 3]),
    "some.flag": MetadataValue(True, GGUFValueType.BOOL),
    "some.large": MetadataValue(2**40, GGUFValueType.UINT64),
}
TENSORS = {
    "token_embd.weight": (Kinds.Q8_0, (4, 64)),
    "blk.0.attn_q.weight": (Kinds.Q4_K, (3, 256)),
    "blk.0.attn_norm.weight": (Kinds.F32, (64,)),
    "blk.0.ffn_up.weight": (Kinds.BF16, (5, 32)),
    "blk.0.ffn_down.weight": (Kinds.F16, (5, 32)),
    "blk.0.ffn_gate_exps.weight": (Kinds.Q5_0, (2, 3, 32)),
}


def blocks(name: str) -> np.ndarray:
    kind, shape = TENSORS[name]
    rows = np.ascontiguousarray(tiny.values(name, shape).reshape(-1, shape[-1]))
    return quantize_rows(kind, rows)


def write(path: Path, names: list[str], keys: Metadata) -> Path:
    infos, body = [], b""
    for name in names:
        infos.append(TensorInfo(name, TENSORS[name][1], TENSORS[name][0], len(body)))
        data = blocks(name).tobytes()
        body += data + bytes(align(len(data), 32) - len(data))
    path.write_bytes(encode_header(keys, infos, 32) + body)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "model.gguf", list(TENSORS), KEYS)


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    names = list(TENSORS)
    paths = []
    for number in range(3):
        keys = {**(KEYS if number == 0 else {}), **shard_metadata(number, 3, len(names))}
        path = tmp_path / f"model-{number + 1:05d}-of-00003.gguf"
        paths.append(write(path, names[number * 2 : number * 2 + 2], keys))
    return paths


def test_metadata_comes_back_as_it_was_written(file: Path) -> None:
    model = open_source(file)
    assert model.architecture == "llama"
    assert dict(model.metadata) == KEYS


def test_rows_are_read_raw_and_dequantized(file: Path) -> None:
    for tensor in open_source(file).tensors:
        kind, shape = TENSORS[tensor.name]
        assert (tensor.source_type, tensor.shape) == (kind, shape)
        assert tensor.read_raw is not None
        stored = blocks(tensor.name)
        np.testing.assert_array_equal(tensor.read_raw(0, tensor.n_rows), stored)
        values = tensor.read(0, tensor.n_rows)
        expected = tiny.values(tensor.name, shape).reshape(-1, shape[-1])
        assert values.dtype == np.float32
        assert np.abs(values - expected).max() <= 0.1 * np.abs(expected).max()
        np.testing.assert_array_equal(tensor.read(1, tensor.n_rows), values[1:])


def test_a_tied_head_is_recognized(file: Path) -> None:
    assert open_source(file).tied_output


def test_vectors_keep_their_type_and_matrices_need_not(file: Path) -> None:
    kept = {t.name: t.keep_type for t in open_source(file).tensors}
    assert kept["blk.0.attn_norm.weight"] == Kinds.F32
    assert kept["blk.0.attn_q.weight"] is None


@pytest.mark.parametrize("which", [0, 1, 2])
def test_any_part_of_a_split_file_stands_for_all(parts: list[Path], which: int) -> None:
    model = open_source(parts[which])
    assert [t.name for t in model.tensors] == list(TENSORS)
    assert dict(model.metadata) == KEYS
    for tensor in model.tensors:
        assert tensor.read_raw is not None
        np.testing.assert_array_equal(tensor.read_raw(0, tensor.n_rows), blocks(tensor.name))


def test_all_missing_parts_are_named(parts: list[Path]) -> None:
    parts[0].unlink()
    parts[2].unlink()
    with pytest.raises(SourceError, match=r"model-00001-of-00003\.gguf, model-00003-of-00003\.gguf"):
        open_source(parts[1])


def test_a_part_under_another_name_is_refused(parts: list[Path]) -> None:
    with pytest.raises(SourceError, match="one of 3 files"):
        open_source(parts[0].rename(parts[0].with_name("renamed.gguf")))


def test_parts_in_the_wrong_order_are_refused(parts: list[Path]) -> None:
    spare = parts[1].with_name("spare")
    parts[1].rename(spare)
    parts[2].rename(parts[1])
    spare.rename(parts[2])
    with pytest.raises(SourceError, match="says it is part 2, expected 1"):
        open_source(parts[0])


def test_a_part_with_fewer_tensors_is_refused(parts: list[Path]) -> None:
    write(parts[2], list(TENSORS)[4:5], shard_metadata(2, 3, len(TENSORS)))
    with pytest.raises(SourceError, match="hold 5 tensors, expected 6"):
        open_source(parts[0])


def test_a_file_cut_short_is_refused_wherever_the_cut_is(file: Path) -> None:
    data = file.read_bytes()
    for size in [4, 8, 23, 24, 30, 100, 300, len(data) // 2, len(data) - 200]:
        file.write_bytes(data[:size])
        with pytest.raises(SourceError, match=r"cut short|bytes|claims"):
            open_source(file)


def test_no_damaged_byte_of_the_header_gets_past_as_another_error(file: Path) -> None:
    data = bytearray(file.read_bytes())
    for at in range(4, 700):
        damaged = bytearray(data)
        damaged[at] ^= 0xFF
        file.write_bytes(damaged)
        try:
            open_source(file)
        except SourceError:
            continue


@pytest.mark.parametrize(
    ("header", "kind", "word"),
    [
        (struct.pack("<4sIQQ", b"GGUF", 1, 0, 0), UnsupportedError, "version 1"),
        (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), UnsupportedError, "big-endian"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 2**60, 0), SourceError, "claims"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, 0) + bytes(64), SourceError, "which architecture"),
    ],
)
def test_headers_that_cannot_be_are_refused(tmp_path: Path, header: bytes, kind: type[SourceError], word: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(header)
    with pytest.raises(kind, match=word):
        open_source(path)


@pytest.mark.parametrize(
    ("keys", "names", "word"),
    [
        ({"general.type": string("mmproj")}, list(TENSORS), "type 'mmproj'"),
        ({}, [], "no tensors"),
        ({"general.alignment": u32(3)}, list(TENSORS), "alignment 3"),
    ],
)
def test_files_that_are_no_model_are_refused(tmp_path: Path, keys: Metadata, names: list[str], word: str) -> None:
    with pytest.raises(SourceError, match=word):
        open_source(write(tmp_path / "model.gguf", names, {**KEYS, **keys}))


def test_keys_that_describe_an_older_quantization_are_left_out(tmp_path: Path) -> None:
    stale = {"quantize.imatrix.file": string("x"), "localrun.quantize.recipe": string("y")}
    assert dict(open_source(write(tmp_path / "m.gguf", list(TENSORS), {**KEYS, **stale})).metadata) == KEYS


def test_a_name_given_by_hand_replaces_the_one_inside(file: Path) -> None:
    assert open_source(file, name="Mine").metadata["general.name"] == string("Mine")
