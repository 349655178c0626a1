"""The identity of a model file is that of its content."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from localrun.errors import ModelFileError
from localrun.gguf import fingerprint, known_sha256, read_header, sha256, vocabulary_fingerprint
from tests.gguf.writer import I32, U32, write_gguf, write_shards


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALRUN_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


BIG = [("w", (1024, 1024), 0)]


def test_a_copy_under_another_name_has_the_same_fingerprint(tmp_path: Path) -> None:
    a = write_gguf(tmp_path / "a.gguf", tensors=BIG)
    b = shutil.copy(a, tmp_path / "b.gguf")
    assert fingerprint(a) == fingerprint(b)
    assert len(fingerprint(a)) == 32


def test_another_template_size_first_or_last_weight_is_another_model(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf", tensors=BIG)
    content = bytearray(path.read_bytes())
    seen = {fingerprint(path)}
    for change in (len(content) - 1, len(content) - 1024 * 1024 * 4):
        changed = bytearray(content)
        changed[change] ^= 1
        path.write_bytes(changed)
        seen.add(fingerprint(path))
    path.write_bytes(content + b"\0")
    seen.add(fingerprint(path))
    seen.add(fingerprint(write_gguf(tmp_path / "b.gguf", {"tokenizer.chat_template": "x"}, tensors=BIG)))
    assert len(seen) == 5


def test_every_file_of_a_split_model_counts(tmp_path: Path) -> None:
    shards = write_shards(tmp_path)
    before = fingerprint(shards[0])
    assert fingerprint(shards[2]) == before
    content = bytearray(shards[2].read_bytes())
    content[-1] ^= 1
    shards[2].write_bytes(content)
    assert fingerprint(shards[0]) != before


def test_a_broken_file_has_no_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelFileError):
        fingerprint(tmp_path / "a.gguf")


def test_the_checksum_is_of_every_byte_and_is_remembered(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf", tensors=BIG)
    assert known_sha256(path) is None
    steps: list[tuple[int, int]] = []
    digest = sha256(path, on_progress=lambda done, total: steps.append((done, total)))
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert steps[-1] == (path.stat().st_size, path.stat().st_size)
    assert known_sha256(path) == digest
    assert sha256(path, on_progress=lambda *_: pytest.fail("read again")) == digest


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf")
    digest = sha256(path)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"!")
    os.utime(path, ns=(0, 1))
    assert known_sha256(path) is None
    assert sha256(path) != digest


def test_a_blob_named_by_its_checksum_needs_no_reading(tmp_path: Path) -> None:
    digest = "ab" * 32
    blob = write_gguf(tmp_path / f"sha256-{digest}")
    link = tmp_path / "model.gguf"
    link.symlink_to(blob)
    assert known_sha256(link) == digest
    assert known_sha256(link, trust_name=False) is None


def test_a_blob_of_the_hub_cache_is_known_by_its_own_name_and_not_by_that_of_a_shared_one(tmp_path: Path) -> None:
    shared = write_gguf(tmp_path / ("cd" * 32))
    blob = tmp_path / "models--o--r" / "blobs" / ("ab" * 32)
    blob.parent.mkdir(parents=True)
    blob.symlink_to(shared)
    link = tmp_path / "models--o--r" / "snapshots" / "rev" / "m.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(Path("../../blobs") / ("ab" * 32))
    assert known_sha256(link) == "ab" * 32
    assert known_sha256(shared) is None


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, home: Path) -> None:
    home.write_text("a file where a folder should be")
    assert len(sha256(write_gguf(tmp_path / "a.gguf"))) == 64


def test_quantizations_of_a_model_share_their_vocabulary_and_another_token_is_another_one(tmp_path: Path) -> None:
    def identity(**changes: object) -> str:
        metadata = {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.tokens": ["a", "b"],
            "tokenizer.ggml.token_type": (I32, [1, 1]),
            **{key.replace("__", "."): value for key, value in changes.items()},
        }
        path = write_gguf(tmp_path / "a.gguf", metadata, tensors=BIG[: len(changes)])
        return vocabulary_fingerprint(read_header(path, runnable=False))

    same = identity()
    assert identity(general__file_type=(U32, 7)) == same
    assert identity(tokenizer__chat_template="x") == same
    others = {
        identity(tokenizer__ggml__tokens=["a", "c"]),
        identity(tokenizer__ggml__tokens=["a", "b", ""]),
        identity(tokenizer__ggml__token_type=(I32, [1, 3])),
        identity(tokenizer__ggml__model="llama"),
        identity(general__name="odd"),
    }
    assert len(others | {same}) == 6
