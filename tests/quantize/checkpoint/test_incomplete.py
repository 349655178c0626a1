"""An incomplete or damaged checkpoint is refused before a weight is read, and the message names what is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from quantize.errors import SourceError, UnsupportedError
from quantize.source import open_source
from tests.quantize.checkpoint import tiny
from tests.quantize.checkpoint.conftest import Folder

SECOND = "model-00002-of-00003.safetensors"
INDEX = "model.safetensors.index.json"


def refused(folder: Folder, *words: str, kind: type[SourceError] = SourceError) -> SourceError:
    with pytest.raises(kind) as caught:
        open_source(folder.path)
    for word in words:
        assert word in caught.value.message
    return caught.value


def test_a_whole_checkpoint_opens(folder: Folder) -> None:
    model = open_source(folder.path)
    assert model.source_bytes == sum(
        p.stat().st_size - 8 - int.from_bytes(p.read_bytes()[:8], "little") for p in folder.path.glob("*.safetensors")
    )


def test_all_missing_shards_are_named(folder: Folder) -> None:
    (folder / SECOND).unlink()
    (folder / "model-00003-of-00003.safetensors").unlink()
    error = refused(folder, SECOND, "model-00003-of-00003.safetensors", "2 of 3")
    assert error.hint is not None


def test_a_gap_in_the_numbering_is_an_error_without_an_index(folder: Folder) -> None:
    (folder / INDEX).unlink()
    (folder / SECOND).unlink()
    refused(folder, SECOND)


def test_the_numbering_is_enough_without_an_index(folder: Folder) -> None:
    (folder / INDEX).unlink()
    assert len(open_source(folder.path).tensors) == len(folder.weights)


def test_a_shard_cut_short_is_named_with_both_sizes(folder: Folder) -> None:
    data = (folder / SECOND).read_bytes()
    (folder / SECOND).write_bytes(data[:-100])
    refused(folder, SECOND, "cut short", str(len(data)), str(len(data) - 100))


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "0 bytes"),
        ((2**40).to_bytes(8, "little") + b"{}", str(2**40)),
        ((10).to_bytes(8, "little") + b"not a json", "damaged header"),
        ((2).to_bytes(8, "little") + b"[]", "expected an object"),
        ((4).to_bytes(8, "little") + b'\xff\xfe{}"', "damaged header"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS"),
        (b"<!DOCTYPE html><html>not found</html>", "damaged"),
    ],
)
def test_a_file_that_is_no_safetensors_file_is_named(folder: Folder, content: bytes, word: str) -> None:
    (folder / SECOND).write_bytes(content)
    refused(folder, SECOND, word)


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        ('{"dtype":"F99","shape":[1],"data_offsets":[0,4]}', "F99"),
        ('{"dtype":"F32","shape":[2],"data_offsets":[0,4]}', "needs 8"),
        ('{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}', "[-1]"),
        ('{"dtype":"F32","shape":[1],"data_offsets":[4,0]}', "[4, 0]"),
        ('{"dtype":"F32","shape":[1]}', "None"),
        ("5", "damaged"),
    ],
)
def test_a_header_entry_that_contradicts_itself_names_the_tensor(folder: Folder, entry: str, word: str) -> None:
    text = ('{"odd":' + entry + "}").encode()
    (folder / SECOND).write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    refused(folder, "'odd'", word)


def test_overlapping_tensors_are_damage(folder: Folder) -> None:
    text = (
        b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}'
    )
    (folder / SECOND).write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    refused(folder, "overlaps")


def test_tensors_of_the_index_that_no_file_holds_are_named(folder: Folder) -> None:
    folder.edit(INDEX, lambda index: index["weight_map"].update({"model.layers.9.mlp.up_proj.weight": SECOND}))
    refused(folder, "model.layers.9.mlp.up_proj.weight", SECOND)


def test_tensors_of_a_file_that_the_index_does_not_know_are_named(folder: Folder) -> None:
    folder.edit(INDEX, lambda index: index["weight_map"].pop("model.norm.weight"))
    refused(folder, "model.norm.weight")


def test_a_left_over_set_beside_the_index_is_left_out_with_a_warning(folder: Folder) -> None:
    tiny.write_safetensors(folder / "model-00001-of-00002.safetensors", {"odd": ("F32", (1,), bytes(4))})
    (warning,) = open_source(folder.path).warnings
    assert "model-00001-of-00002.safetensors" in warning


def test_two_sets_without_an_index_are_refused(folder: Folder) -> None:
    (folder / INDEX).unlink()
    shutil.copy(folder / SECOND, folder / "model-00001-of-00001.safetensors")
    refused(folder, "several sets")


def test_a_single_file_beside_shards_without_an_index_is_refused(folder: Folder) -> None:
    (folder / INDEX).unlink()
    shutil.copy(folder / SECOND, folder / "model.safetensors")
    refused(folder, "both")


def test_a_tensor_stored_twice_is_named_with_both_files(folder: Folder) -> None:
    (folder / INDEX).unlink()
    shutil.copy(folder / SECOND, folder / "model-00003-of-00003.safetensors")
    refused(folder, "stored twice", SECOND)


def test_an_index_may_not_point_out_of_the_folder(folder: Folder) -> None:
    folder.edit(INDEX, lambda index: index["weight_map"].update({"model.norm.weight": "../elsewhere.safetensors"}))
    refused(folder, "../elsewhere.safetensors")


def test_pickled_weights_are_refused_by_name(folder: Folder) -> None:
    for path in [*folder.path.glob("*.safetensors"), folder / INDEX]:
        path.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"x")
    refused(folder, "pytorch_model.bin", kind=UnsupportedError)


def test_a_folder_without_weights_says_so(folder: Folder) -> None:
    for path in [*folder.path.glob("*.safetensors"), folder / INDEX]:
        path.unlink()
    refused(folder, "no weights")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("{", "not valid JSON"),
        ("[]", "expected an object"),
        ('{"a": 1}', "architecture"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_a_damaged_configuration_is_named(folder: Folder, content: str, word: str) -> None:
    (folder / "config.json").write_text(content)
    refused(folder, "config.json", word)


def test_a_missing_configuration_is_named(folder: Folder) -> None:
    (folder / "config.json").unlink()
    refused(folder, "config.json is missing")


def test_an_adapter_is_refused_as_one(folder: Folder) -> None:
    (folder / "config.json").rename(folder / "adapter_config.json")
    refused(folder, "adapter", kind=UnsupportedError)


def test_an_unknown_architecture_is_refused_by_its_name(folder: Folder) -> None:
    folder.edit("config.json", lambda config: config.update(architectures=["MambaForCausalLM"]))
    error = refused(folder, "MambaForCausalLM", kind=UnsupportedError)
    assert error.hint is not None
    assert "LlamaForCausalLM" in error.hint


def test_a_path_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        open_source(tmp_path / "nothing")


def test_a_file_that_is_no_model_is_refused(folder: Folder) -> None:
    with pytest.raises(SourceError, match="neither a checkpoint folder nor a GGUF file"):
        open_source(folder / "config.json")
