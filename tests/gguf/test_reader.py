"""The header reader reads what a correct file says, and refuses what is not a correct file."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from localrun.errors import ModelFileError
from localrun.gguf import read_header
from localrun.gguf.reader import MAX_KEYS, MAX_TENSORS
from tests.gguf.engine_oracle import Ggml
from tests.gguf.writer import (
    ARRAY,
    F64,
    I64,
    MODEL_KEYS,
    MODEL_TENSORS,
    STRING,
    U8,
    U32,
    U64,
    gguf_bytes,
    header,
    key_value,
    tensor_info,
    text,
    write_gguf,
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "model.gguf")


def refusal(path: Path) -> ModelFileError:
    """The error that reading `path` raises."""
    with pytest.raises(ModelFileError) as caught:
        read_header(path)
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message
    return caught.value


def refused(tmp_path: Path, content: bytes) -> str:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    return refusal(path).message


def test_a_header_tells_what_the_file_holds(model: Path) -> None:
    head = read_header(model)
    assert (head.version, head.architecture, head.name, head.license) == (3, "llama", "Tiny Test", "mit")
    assert (head.n_ctx_train, head.n_layers, head.n_embd, head.n_vocab) == (128, 2, 64, 4)
    assert head.chat_template == "{{ messages[0].content }}"
    assert head.quantization == "F32"
    assert head.parameters == 64 * 4 + 64 * 64 + 64
    assert head.file_size == model.stat().st_size
    assert head.shards == (model,)
    assert head.tensors_by_type == {"F32": 2, "Q4_0": 1}
    assert head.bytes_by_type == {"Q4_0": 64 * 64 // 32 * 18, "F32": (64 * 4 + 64) * 4}


def test_arrays_are_sequences_read_on_demand(model: Path) -> None:
    head = read_header(model)
    tokens, scores = head.array("tokenizer.ggml.tokens"), head.array("tokenizer.ggml.scores")
    assert tokens is not None
    assert scores is not None
    assert head.array("general.name") is None
    assert list(tokens) == ["a", "b", "é", "🙂"]
    assert tokens[-1] == "🙂"
    assert tokens[1:3] == ["b", "é"]
    assert list(scores) == [0.5, 1.0, -2.0, 0.0]
    assert repr(tokens) == "<4 x STRING>"


def test_an_array_of_a_file_that_changed_is_an_error_and_no_garbage(model: Path) -> None:
    tokens = read_header(model).array("tokenizer.ggml.tokens")
    assert tokens is not None
    model.write_bytes(b"GGUF")
    with pytest.raises(ModelFileError, match="changed"):
        list(tokens)


def test_the_quantization_falls_back_to_the_type_that_most_bytes_have(tmp_path: Path) -> None:
    assert read_header(write_gguf(tmp_path / "a.gguf", {"general.file_type": None})).quantization == "Q4_0"
    assert read_header(write_gguf(tmp_path / "b.gguf", {"general.file_type": (U32, 15)})).quantization == "Q4_K_M"
    assert read_header(write_gguf(tmp_path / "c.gguf", {"general.file_type": (U32, 1024 + 7)})).quantization == "Q8_0"
    assert read_header(write_gguf(tmp_path / "d.gguf", {"general.file_type": (U32, 999)})).quantization == "Q4_0"


def test_a_key_with_one_number_a_layer_counts_as_its_largest(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", {"llama.context_length": (U32, [4096, 512])})
    assert read_header(path).n_ctx_train == 4096


@pytest.mark.parametrize("alignment", [1, 8, 32, 64, 4096])
@pytest.mark.parametrize("version", [2, 3])
def test_every_alignment_and_version_that_the_engine_reads_is_read(
    tmp_path: Path, alignment: int, version: int
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(alignment=alignment, version=version))
    assert read_header(path).data_offset == Ggml().data_offset(path)


def test_a_file_of_gguf_py_is_read_as_its_own_reader_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(7)
    writer.add_float32("llama.rope.freq_base", 1e4)
    writer.add_token_list(["x", "yy"])
    writer.add_tensor("a", np.arange(96, dtype=np.float32).reshape(3, 32))
    writer.add_tensor("b", np.zeros((2, 34), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ours, theirs = read_header(path, runnable=False), gguf.GGUFReader(path)
    assert [(t.name, t.shape, t.type.name, t.offset, t.n_bytes) for t in ours.tensors] == [
        (t.name, tuple(t.shape.tolist()), t.tensor_type.name, t.data_offset, t.n_bytes) for t in theirs.tensors
    ]
    assert ours.n_layers == 7
    assert ours.metadata["llama.rope.freq_base"] == 1e4
    assert list(ours.array("tokenizer.ggml.tokens") or ()) == ["x", "yy"]


def test_a_vocabulary_file_without_tensors_is_read(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "vocab.gguf", tensors=[])
    assert read_header(path).tensors == ()
    assert read_header(path).data_offset == Ggml().data_offset(path)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"<!DOCTYPE html><html>", "an HTML page"),
        (b"\n  <html lang=en>", "an HTML page"),
        (b"\xef\xbb\xbf<HTML>", "an HTML page"),
        (b"<?xml version='1.0'?><Error/>", "an XML document"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "a Git LFS pointer"),
        (b"", "empty"),
        (b"G", "cut short after 1 bytes"),
        (b"GGU", "cut short after 3 bytes"),
        (b"tjgg\x01\0\0\0" + bytes(100), "a legacy GGJT file"),
        (b"lmgg" + bytes(100), "an unversioned GGML file"),
        (b"fmgg" + bytes(100), "a legacy GGMF file"),
        (b"PK\x03\x04" + bytes(100), "a ZIP archive"),
        (struct.pack("<Q", 90) + b'{"__metadata__":{}}', "a safetensors checkpoint"),
        (b'{"error":"Repository not found"}', "a JSON document"),
        (bytes(4096), "begins with zeros"),
        (b"Access to this model is restricted\nplease", "a text file that begins 'Access to this model is restricted'"),
        (b"\x7fELF\x02\x01\x01" + bytes(9), "an unknown kind of file that begins with the bytes 7f 45 4c 46"),
    ],
)
def test_a_file_that_is_no_gguf_is_called_by_its_name(tmp_path: Path, content: bytes, kind: str) -> None:
    assert kind in refused(tmp_path, content)


def test_a_directory_a_missing_file_and_a_device_are_refused(tmp_path: Path) -> None:
    assert "is a folder" in refusal(tmp_path).message
    assert "No such file" in refusal(tmp_path / "none.gguf").message
    assert "not a regular file" in refusal(Path("/dev/zero")).message


@pytest.mark.parametrize("name", ["mödel 日本 (1).gguf", "-x.gguf", "a:b%20c.gguf", " .gguf"])
def test_an_awkward_name_is_read_and_quoted_exactly(tmp_path: Path, name: str) -> None:
    path = write_gguf(tmp_path / name)
    assert read_header(path).path == path
    path.write_bytes(b"")
    assert name in refusal(path).message


def test_a_line_break_in_a_name_does_not_break_the_message(tmp_path: Path) -> None:
    path = tmp_path / "a\nb.gguf"
    path.write_bytes(b"")
    with pytest.raises(ModelFileError) as caught:
        read_header(path)
    assert "\n" not in caught.value.message
    assert "a\\nb.gguf" in caught.value.message


def test_a_symbolic_link_is_followed_but_named_as_the_user_named_it(tmp_path: Path, model: Path) -> None:
    link = tmp_path / "link.gguf"
    link.symlink_to(model)
    assert read_header(link).path == link


def test_every_cut_is_refused_and_the_missing_bytes_are_told(model: Path) -> None:
    head = read_header(model)
    needed = head.tensors[-1].offset + head.tensors[-1].n_bytes
    with model.open("r+b") as file:
        file.truncate(needed - 1)
        assert f"needs {needed} bytes and has {needed - 1}" in refusal(model).message
        for size in [*range(needed - 1, head.data_offset, -50), *range(head.data_offset, 3, -1)]:
            file.truncate(size)
            assert "cut short" in refusal(model).message


def test_padding_after_the_last_tensor_may_be_missing(tmp_path: Path, model: Path) -> None:
    last = read_header(model).tensors[-1]
    path = tmp_path / "trimmed.gguf"
    path.write_bytes(model.read_bytes()[: last.offset + last.n_bytes])
    assert len(read_header(path).tensors) == 3


BIG = 1 << 60
ONE_KEY = [key_value("general.architecture", "llama")]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (struct.pack("<4sIQQ", b"GGUF", 3, BIG, 0), f"claims {BIG} tensors"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, BIG), f"claims {BIG} keys"),
        (struct.pack("<4sIQQ", b"GGUF", 3, (1 << 64) - 1, 0), "tensors"),
        (struct.pack("<4sIQQ", b"GGUF", 0, 0, 0), "version 0"),
        (struct.pack("<4sIQQ", b"GGUF", 1, 0, 0), "version 1"),
        (struct.pack("<4sIQQ", b"GGUF", 99, 0, 0), "version 99"),
        (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), "big-endian"),
        (header([text("k") + struct.pack("<IQ", STRING, 1 << 63)]) + bytes(99), f"{1 << 63} bytes"),
        (header([struct.pack("<Q", 1 << 63) + bytes(90)]), "the name of key 0"),
        (header([key_value("", "x")]), "empty name"),
        (header([key_value("k", "x"), key_value("k", "y")]), "the key 'k' twice"),
        (header([text("k") + struct.pack("<I", 13) + bytes(90)]), "unknown type 13"),
        (header([text("k") + struct.pack("<IIQ", ARRAY, ARRAY, 1) + bytes(90)]), "array of the unknown type 9"),
        (header([text("k") + struct.pack("<IIQ", ARRAY, U8, BIG) + bytes(90)]), f"claims {BIG} elements"),
        (header([text("k") + struct.pack("<IIQ", ARRAY, F64, 12) + bytes(90)]), "claims 12 elements"),
        (header([text("k") + struct.pack("<IIQ", ARRAY, STRING, 3) + b"\xff" * 90]), "inside the array 'k'"),
        (header([text("k") + struct.pack("<IIQQ", ARRAY, STRING, 1, 91) + bytes(90)]), "inside the array 'k'"),
        (header([key_value("general.alignment", (U32, 0))]), "general.alignment 0"),
        (header([key_value("general.alignment", (U32, 24))]), "general.alignment 24"),
        (header([key_value("general.alignment", "32")]), "general.alignment '32'"),
        (header([], [tensor_info("t" * 64, (1,), 0, 0)]), "tensor name of 64"),
        (header([], [text("t") + struct.pack("<I", 5) + bytes(90)]), "5 dimensions"),
        (header([], [text("t") + struct.pack("<I", 2**32 - 1) + bytes(90)]), "dimensions"),
        (header([], [tensor_info("t", (4194305, 4194305, 211106198978564), 0, 0)]), "impossible shape"),
        (header([], [tensor_info("t", (1 << 63,), 0, 0)]), "impossible shape"),
        (header([], [tensor_info("t", (0, 1 << 63), 0, 0)]), "impossible shape"),
        (header([], [tensor_info("t", (1 << 50,), 0, 0)]), "needs"),
        (header([], [tensor_info("t", (33,), 2, 0)]), "rows of 33 elements"),
        (header([], [tensor_info("t", (), 2, 0)]), "rows of 1 elements"),
        (header([], [tensor_info("t", (4,), 0, 32)]) + bytes(99), "offset 32, expected 0"),
        (header([], [tensor_info("t", (4,), 0, 2**64 - 32)]) + bytes(99), "expected 0"),
        (header([], [tensor_info("t", (1,), 0, 0), tensor_info("t", (1,), 0, 32)]) + bytes(99), "'t' twice"),
        (header([], [tensor_info("t", (1,), 4, 0)]) + bytes(99), "type 4 (Q4_2)"),
        (header([], [tensor_info("t", (1,), 43, 0)]) + bytes(99), "'t' of the unknown type 43"),
        (header([], [tensor_info("t", (1,), 2**32 - 1, 0)]) + bytes(99), "unknown type"),
    ],
)
def test_a_damaged_or_hostile_header_is_refused_in_little_memory(tmp_path: Path, content: bytes, words: str) -> None:
    tracemalloc.start()
    message = refused(tmp_path, content)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert words in message
    assert peak < 4 << 20


def test_an_unknown_tensor_type_is_no_fault_of_the_download(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(header(ONE_KEY, [tensor_info("blk.0.x", (1,), 99, 0)]) + bytes(99))
    assert "newer or another tool" in (refusal(path).hint or "")


def test_more_keys_tensors_or_text_than_any_model_has_are_refused(tmp_path: Path) -> None:
    filler = bytes(24 * (MAX_TENSORS + 2))
    assert "at most" in refused(tmp_path, struct.pack("<4sIQQ", b"GGUF", 3, MAX_TENSORS + 1, 0) + filler)
    assert "at most" in refused(tmp_path, struct.pack("<4sIQQ", b"GGUF", 3, 0, MAX_KEYS + 1) + filler)
    sparse = tmp_path / "sparse.gguf"
    with sparse.open("wb") as file:
        file.write(header([text("k") + struct.pack("<IQ", STRING, 1 << 30)]))
        file.truncate(1 << 31)
    assert "64 MiB" in refusal(sparse).message


def test_text_that_is_not_utf8_is_no_crash(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", {"general.name": b"caf\xe9", "tokenizer.ggml.tokens": [b"\xff", b"ok"]})
    head = read_header(path)
    assert head.name == "caf\ufffd"
    assert list(head.array("tokenizer.ggml.tokens") or ()) == ["\ufffd", "ok"]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"general.architecture": "nope"}, "architecture 'nope'"),
        ({"general.architecture": None}, "general.architecture is missing"),
        ({"general.architecture": (U32, 1)}, "general.architecture is missing"),
        ({"general.architecture": "clip"}, "vision or audio part"),
        ({"general.type": "mmproj"}, "vision or audio part"),
        ({"general.type": "adapter"}, "LoRA adapter"),
        ({"general.type": "imatrix"}, "importance matrix"),
    ],
)
def test_what_is_no_language_model_is_refused_but_can_be_looked_at(
    tmp_path: Path, keys: dict[str, Any], words: str
) -> None:
    path = write_gguf(tmp_path / "m.gguf", keys)
    assert words in refusal(path).message
    assert read_header(path, runnable=False).version == 3


def test_odd_values_of_standard_keys_read_as_missing(tmp_path: Path) -> None:
    odd = {"llama.block_count": "two", "general.name": (I64, 5), "general.file_type": True, "general.license": (U64, 1)}
    head = read_header(write_gguf(tmp_path / "m.gguf", odd))
    assert (head.n_layers, head.name, head.license, head.quantization) == (None, None, None, "Q4_0")


VALID = gguf_bytes()
HEADER_BYTES = 1024


@settings(
    max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    at=st.integers(0, HEADER_BYTES),
    new=st.binary(min_size=1, max_size=9) | st.sampled_from([b"\xff" * 8, bytes(8), struct.pack("<Q", 1 << 62)]),
)
@example(at=4, new=b"\x02")
def test_whatever_is_overwritten_the_reader_is_never_surprised_and_never_laxer_than_the_engine(
    tmp_path: Path, at: int, new: bytes
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(VALID[:at] + new + VALID[at + len(new) :])
    try:
        ours = read_header(path, runnable=False).data_offset
    except ModelFileError:
        return
    assert ours == Ggml().data_offset(path)


def test_the_fixture_model_is_what_the_engine_accepts(model: Path) -> None:
    assert Ggml().data_offset(model) == read_header(model).data_offset
    assert len(MODEL_KEYS) == len(read_header(model).metadata)
    assert len(MODEL_TENSORS) == len(read_header(model).tensors)
