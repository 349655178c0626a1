"""Checkpoints that are quantized already: FP8 with its scales is read, everything else is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from quantize.checkpoint.quantized import _float8_table
from quantize.errors import SourceError, UnsupportedError
from quantize.source import open_source
from tests.quantize.checkpoint import tiny
from tests.quantize.checkpoint.conftest import Folder

Stored = dict[str, tuple[str, tuple[int, ...], bytes]]
TABLE = _float8_table("F8_E4M3")
BLOCK = 16


def to_float8(data: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """The nearest E4M3 code of each value."""
    codes = np.concatenate((np.arange(0x7F), np.arange(0x80, 0xFF))).astype(np.uint8)
    order = np.argsort(TABLE[codes], kind="stable")
    sorted_values = TABLE[codes][order].astype(np.float64)
    middles = (sorted_values[1:] + sorted_values[:-1]) / 2
    return codes[order][np.searchsorted(middles, data)]


def stored_as_fp8(folder: Folder, scale_shape: str, suffix: str, *, drop_scales: bool = False) -> dict[str, Any]:
    """Store all matrices of the layers as FP8 with scales; return the values they stand for and the original ones."""
    stored: Stored = {}
    expected: dict[str, Any] = {}
    for name, dtype, shape in folder.weights:
        data = tiny.values(name, tuple(shape))
        if ".layers." not in name or len(shape) != 2:
            stored[name] = (dtype, tuple(shape), tiny.encode(name, dtype, tuple(shape)))
            continue
        rows, columns = shape
        height, width = {"block": (BLOCK, BLOCK), "channel": (1, columns), "tensor": (rows, columns)}[scale_shape]
        grid_shape = (-(-rows // height), -(-columns // width))
        padded = np.zeros((grid_shape[0] * height, grid_shape[1] * width), np.float32)
        padded[:rows, :columns] = data
        blocks = padded.reshape(grid_shape[0], height, grid_shape[1], width)
        scale = (np.abs(blocks).max((1, 3)) / 448).astype(np.float32)
        wide = np.repeat(np.repeat(scale, height, 0), width, 1)[:rows, :columns]
        codes = to_float8((data / wide).astype(np.float32))
        stored[name] = ("F8_E4M3", (rows, columns), codes.tobytes())
        if not drop_scales:
            real_shape = () if scale_shape == "tensor" else scale.shape
            stored[name + suffix] = ("F32", real_shape, scale.tobytes())
        expected[name] = (TABLE[codes] * wide, data)
    for old in [*folder.path.glob("*.safetensors"), *folder.path.glob("*.index.json")]:
        old.unlink()
    tiny.write_safetensors(folder / "model.safetensors", stored)
    return expected


@pytest.mark.parametrize(
    ("scales", "suffix", "config"),
    [
        ("block", "_scale_inv", {"quant_method": "fp8", "weight_block_size": [BLOCK, BLOCK]}),
        ("tensor", "_scale_inv", {"quant_method": "fp8"}),
        ("channel", "_scale", {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {}}),
    ],
)
def test_fp8_weights_are_multiplied_with_their_scales(
    byte_level_folder: Folder, scales: str, suffix: str, config: dict[str, Any]
) -> None:
    expected = stored_as_fp8(byte_level_folder, scales, suffix)
    byte_level_folder.edit("config.json", lambda c: c.update(quantization_config=config))
    tensors = {t.name: t for t in open_source(byte_level_folder.path).tensors}
    for theirs, ours in (("self_attn.v_proj", "attn_v"), ("mlp.down_proj", "ffn_down"), ("mlp.up_proj", "ffn_up")):
        tensor = tensors[f"blk.1.{ours}.weight"]
        exact, original = expected[f"model.layers.1.{theirs}.weight"]
        whole = tensor.read(0, tensor.n_rows)
        np.testing.assert_array_equal(whole, exact)
        np.testing.assert_array_equal(np.concatenate([tensor.read(0, 7), tensor.read(7, tensor.n_rows)]), whole)
        assert np.linalg.norm(whole - original) / np.linalg.norm(original) < 0.04  # what three bits of mantissa cost
        assert tensor.read_raw is None


def test_fp8_weights_without_scales_are_refused(byte_level_folder: Folder) -> None:
    stored_as_fp8(byte_level_folder, "block", "_scale_inv", drop_scales=True)
    with pytest.raises(UnsupportedError, match=r"F8_E4M3 and has no scale"):
        open_source(byte_level_folder.path)


def test_scales_that_do_not_fit_are_refused(byte_level_folder: Folder) -> None:
    stored_as_fp8(byte_level_folder, "block", "_scale_inv")
    wrong = {"quant_method": "fp8", "weight_block_size": [BLOCK, 2 * BLOCK]}
    byte_level_folder.edit("config.json", lambda c: c.update(quantization_config=wrong))
    with pytest.raises(SourceError, match=r"does not fit .* in blocks of 16 x 32"):
        open_source(byte_level_folder.path)
    byte_level_folder.edit("config.json", lambda c: c.update(quantization_config={"quant_method": "fp8"}))
    with pytest.raises(SourceError, match="does not fit"):
        open_source(byte_level_folder.path)


def test_float8_codes_have_their_values() -> None:
    assert TABLE[[0x00, 0x01, 0x08, 0x38, 0x7E, 0xB8]].tolist() == [0.0, 2.0**-9, 2.0**-6, 1.0, 448.0, -1.0]
    assert np.isnan(TABLE[[0x7F, 0xFF]]).all()
    five_two = _float8_table("F8_E5M2")
    assert five_two[[0x3C, 0x7B, 0xBC]].tolist() == [1.0, 57344.0, -1.0]


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"quant_method": "gptq", "bits": 4}, "GPTQ"),
        ({"quant_method": "awq"}, "AWQ"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, "compressed-tensors (pack-quantized)"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "modelopt (NVFP4)"),
        ({"quant_method": "aqlm"}, "aqlm"),
    ],
)
def test_other_methods_are_refused_by_their_name(folder: Folder, config: dict[str, Any], word: str) -> None:
    folder.edit("config.json", lambda c: c.update(quantization_config=config))
    with pytest.raises(UnsupportedError) as caught:
        open_source(folder.path)
    assert word in caught.value.message
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    ("name", "dtype", "word"),
    [
        ("model.layers.0.self_attn.q_proj.qweight", "I32", "GPTQ or AWQ"),
        ("model.layers.0.self_attn.q_proj.weight.absmax", "U8", "bitsandbytes"),
        ("model.layers.0.self_attn.q_proj.weight._data", "I8", "quanto"),
    ],
)
def test_what_a_method_leaves_behind_gives_it_away(folder: Folder, name: str, dtype: str, word: str) -> None:
    width = {"I32": 4, "U8": 1, "I8": 1}[dtype]
    stored: Stored = {n: (d, tuple(s), tiny.encode(n, d, tuple(s))) for n, d, s in folder.weights}
    stored[name] = (dtype, (4,), bytes(4 * width))
    folder.store([])
    tiny.write_safetensors(folder / "model.safetensors", stored)
    with pytest.raises(UnsupportedError, match=word):
        open_source(folder.path)


def test_mlx_checkpoints_are_refused_by_name(folder: Folder) -> None:
    folder.edit("config.json", lambda c: c.update(quantization={"group_size": 64, "bits": 4}))
    with pytest.raises(UnsupportedError, match="MLX"):
        open_source(folder.path)


def test_the_separate_file_of_a_producer_counts(folder: Folder) -> None:
    (folder / "hf_quant_config.json").write_text(
        '{"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "W4A16"}}'
    )
    with pytest.raises(UnsupportedError, match=r"modelopt \(W4A16\)"):
        open_source(folder.path)


def test_integer_weights_are_not_read_as_numbers(folder: Folder) -> None:
    stored: Stored = {n: (d, tuple(s), tiny.encode(n, d, tuple(s))) for n, d, s in folder.weights}
    stored["model.norm.weight"] = ("I8", (64,), bytes(64))
    folder.store([])
    tiny.write_safetensors(folder / "model.safetensors", stored)
    with pytest.raises(SourceError, match=r"model\.norm\.weight"):
        open_source(folder.path)
