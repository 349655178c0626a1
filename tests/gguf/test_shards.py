"""A split model is one model, whichever of its files is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from localrun.errors import ModelFileError
from localrun.gguf import read_header
from tests.gguf.writer import MODEL_KEYS, U16, gguf_bytes, write_gguf, write_shards


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    return write_shards(tmp_path)


def test_the_first_file_stands_for_the_whole_set(shards: list[Path]) -> None:
    head = read_header(shards[0])
    assert head.shards == tuple(shards)
    assert [t.name for t in head.tensors] == [f"blk.{n}.attn_q.weight" for n in range(3)]
    assert [t.shard for t in head.tensors] == [0, 1, 2]
    assert head.parameters == 3 * 64 * 64
    assert head.file_size == sum(p.stat().st_size for p in shards)


def test_another_file_leads_to_the_first(shards: list[Path]) -> None:
    assert read_header(shards[1]).path == shards[0]
    assert read_header(shards[2]).tensors == read_header(shards[0]).tensors


def test_a_missing_file_is_named(shards: list[Path]) -> None:
    shards[2].unlink()
    for path in shards[:2]:
        with pytest.raises(ModelFileError, match=shards[2].name):
            read_header(path)


def test_a_file_that_is_cut_short_is_named(shards: list[Path]) -> None:
    shards[1].write_bytes(shards[1].read_bytes()[:-1000])
    with pytest.raises(ModelFileError, match=f"{shards[1].name} is cut short"):
        read_header(shards[0])


def test_a_renamed_file_is_explained(shards: list[Path]) -> None:
    renamed = shards[0].rename(shards[0].with_name("model.gguf"))
    with pytest.raises(ModelFileError, match="file 1 of a model in 3 files") as caught:
        read_header(renamed)
    assert "NAME-00001-of-00003.gguf" in (caught.value.hint or "")


def test_two_files_with_swapped_names_are_refused(shards: list[Path]) -> None:
    spare = shards[0].with_name("spare")
    shards[1].rename(spare)
    shards[2].rename(shards[1])
    spare.rename(shards[2])
    with pytest.raises(ModelFileError, match="is not file 2 of 3"):
        read_header(shards[0])


def test_a_file_of_another_set_is_refused(tmp_path: Path, shards: list[Path]) -> None:
    other = tmp_path / "other"
    other.mkdir()
    write_shards(other, count=4)[1].rename(shards[1])
    with pytest.raises(ModelFileError, match="is not file 2 of 3"):
        read_header(shards[0])


def test_files_joined_with_cat_are_explained(tmp_path: Path, shards: list[Path]) -> None:
    joined = tmp_path / "joined.gguf"
    joined.write_bytes(b"".join(p.read_bytes() for p in shards))
    with pytest.raises(ModelFileError, match="one after the other") as caught:
        read_header(joined)
    assert "cat" in (caught.value.hint or "")


def test_joined_files_under_the_name_of_the_first_are_explained_too(shards: list[Path]) -> None:
    content = b"".join(p.read_bytes() for p in shards)
    shards[0].write_bytes(content)
    with pytest.raises(ModelFileError, match="one after the other"):
        read_header(shards[0])


def test_a_set_of_one_just_loads(tmp_path: Path) -> None:
    keys = {"split.no": (U16, 0), "split.count": (U16, 1)}
    assert read_header(write_gguf(tmp_path / "m-00001-of-00001.gguf", keys)).n_layers == 2
    assert read_header(write_gguf(tmp_path / "m.gguf", keys)).n_layers == 2


def test_absurd_split_keys_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="at most"):
        read_header(write_gguf(tmp_path / "a.gguf", {"split.count": (U16, 60000)}))
    with pytest.raises(ModelFileError, match=r"split\.count 'x'"):
        read_header(write_gguf(tmp_path / "b.gguf", {"split.count": "x"}))


def test_the_same_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    for number in (0, 1):
        keys = MODEL_KEYS | {"split.no": (U16, number), "split.count": (U16, 2)}
        (tmp_path / f"m-0000{number + 1}-of-00002.gguf").write_bytes(gguf_bytes(keys))
    with pytest.raises(ModelFileError, match="which another file has too"):
        read_header(tmp_path / "m-00001-of-00002.gguf")
