"""Checkpoints that are quantized already: which are refused, and FP8 weights joined with their scales.

Knows the `quantization_config` of config.json and the tensor names of the common methods. Invariant: an FP8 weight is
never handed out without its scale, and a scale is never left over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType

from quantize.checkpoint.config import Json, read_json_if_there
from quantize.checkpoint.folder import Checkpoint
from quantize.checkpoint.safetensors import StoredTensor
from quantize.checkpoint.weight import Weight, weight_of
from quantize.errors import SourceError, UnsupportedError
from quantize.model import Rows

_MARKS = {
    ".qweight": "GPTQ or AWQ",
    ".qzeros": "GPTQ or AWQ",
    ".g_idx": "GPTQ",
    ".weight_packed": "packed compressed-tensors",
    ".quant_state.bitsandbytes__nf4": "bitsandbytes",
    ".quant_state.bitsandbytes__fp4": "bitsandbytes",
    ".absmax": "bitsandbytes",
    ".SCB": "bitsandbytes",
    "._data": "quanto",
    ".weight_scale_2": "NVFP4",
}
"""Tensor name endings that only one method leaves behind, in case config.json says nothing."""

_NAMES = {"gptq": "GPTQ", "awq": "AWQ", "bitsandbytes": "bitsandbytes", "bitnet": "BitNet", "quanto": "quanto"}
_SCALES = ("_scale_inv", "_scale")
_UNUSED = (".activation_scale", "_activation_scale", ".input_scale", ".k_scale", ".v_scale")
"""Scales of activations and of the KV cache: the engine computes activations in its own way."""

_HINT = (
    "Quantize the original checkpoint instead: weights rounded twice are worse, and this method cannot be undone here."
)

_INTEGERS = ("I64", "U64", "I32", "U32", "I16", "U16", "I8", "U8", "BOOL")

Scale = npt.NDArray[np.float32]


def quantization_of(checkpoint: Checkpoint) -> Json:
    """The `quantization_config`, from config.json or the separate file of some producers; empty when there is none."""
    config = checkpoint.config.get("quantization_config", "compression_config")
    if isinstance(config, dict):
        return config
    separate = read_json_if_there(checkpoint.folder / "hf_quant_config.json")
    if not separate:
        return {}
    inner = separate.get("quantization")
    producer = separate.get("producer")
    name = producer.get("name", "modelopt") if isinstance(producer, dict) else "modelopt"
    return {"quant_method": name, **(inner if isinstance(inner, dict) else {})}


@dataclass(frozen=True, slots=True)
class PlainWeights:
    """The floating-point weights of a checkpoint, and the names of the scales that went into them."""

    by_name: dict[str, Weight]
    scales: set[str]


def plain_weights(checkpoint: Checkpoint) -> PlainWeights:
    """All weights as floating-point ones, in the order of the checkpoint; scales are joined with their weights.

    Integers are left out: what they mean (MXFP4 blocks, position ids) is an architecture's business. Raises
    UnsupportedError for a method that is not read here, by its name.
    """
    config = quantization_of(checkpoint)
    _refuse_unknown(checkpoint, config)
    block = _block_size(config)
    scales = _scales(checkpoint)
    weights = {}
    for name, tensor in checkpoint.tensors.items():
        if name in scales.used or tensor.dtype in _INTEGERS:
            continue
        if tensor.dtype in ("F8_E4M3", "F8_E5M2"):
            scale = scales.by_weight.get(name)
            if scale is None:
                raise UnsupportedError(
                    f"tensor {name!r} is {tensor.dtype} and has no scale beside it",
                    hint="FP8 values mean nothing without their scales. Use the original BF16 checkpoint.",
                )
            weights[name] = _scaled(tensor, scale, block)
        else:
            weights[name] = weight_of(tensor)
    return PlainWeights(weights, scales.used)


def _refuse_unknown(checkpoint: Checkpoint, config: Json) -> None:
    if isinstance(checkpoint.config.get("quantization"), dict):
        raise UnsupportedError("the checkpoint is quantized with MLX, which is not read here", hint=_HINT)
    method = config.get("quant_method")
    if method is not None:
        fp8 = method == "fp8" or (
            method == "compressed-tensors" and config.get("format") in ("float-quantized", "naive-quantized")
        )
        if method == "modelopt":
            fp8 = config.get("quant_algo") == "FP8"
        if not fp8 and method != "mxfp4":
            kind = config.get("format") or config.get("quant_algo")
            name = _NAMES.get(str(method), str(method)) + (f" ({kind})" if kind else "")
            raise UnsupportedError(f"the checkpoint is quantized with {name}, which is not read here", hint=_HINT)
    for name in checkpoint.tensors:
        for ending, kind in _MARKS.items():
            if name.endswith(ending):
                raise UnsupportedError(f"the checkpoint is quantized with {kind}: it holds {name!r}", hint=_HINT)


def _block_size(config: Json) -> tuple[int, int] | None:
    """Rows and columns that share a scale, as the configuration says; None when it says nothing."""
    size = config.get("weight_block_size")
    if size is None:
        groups = config.get("config_groups")
        first: Any = next(iter(groups.values()), None) if isinstance(groups, dict) else None
        weights = first.get("weights") if isinstance(first, dict) else None
        size = weights.get("block_structure") if isinstance(weights, dict) else None
    if size is None:
        return None
    if not (isinstance(size, list) and len(size) == 2 and all(isinstance(n, int) and n > 0 for n in size)):
        raise SourceError(f"config.json has a bad weight block size: {size!r}")
    return size[0], size[1]


class _Scales:
    """The scale tensors of a checkpoint, by the name of the weight they belong to."""

    def __init__(self) -> None:
        self.by_weight: dict[str, StoredTensor] = {}
        self.used: set[str] = set()


def _scales(checkpoint: Checkpoint) -> _Scales:
    found = _Scales()
    for name, tensor in checkpoint.tensors.items():
        ending = next((e for e in _SCALES if name.endswith(e)), None)
        weight = checkpoint.tensors.get(name.removesuffix(ending)) if ending else None
        if weight is not None and weight.dtype.startswith("F8_"):
            found.by_weight[weight.name] = tensor
            found.used.add(name)
        elif name.endswith(_UNUSED):
            found.used.add(name)
    return found


def _float8_table(dtype: str) -> npt.NDArray[np.float32]:
    """The values of all 256 codes. E5M2 is the upper half of a float16; E4M3 (fn) has no infinity, NaN is 0x7f/0xff."""
    codes = np.arange(256, dtype=np.uint16)
    if dtype == "F8_E5M2":
        return (codes << 8).view(np.float16).astype(np.float32)
    sign = np.where(codes & 0x80, -1.0, 1.0)
    exponent, mantissa = (codes >> 3) & 0xF, (codes & 7) / 8.0
    value = np.where(exponent == 0, mantissa * 2.0**-6, (1.0 + mantissa) * 2.0 ** (exponent.astype(np.float64) - 7))
    value[(codes & 0x7F) == 0x7F] = np.nan
    return (sign * value).astype(np.float32)


def _scaled(tensor: StoredTensor, scale: StoredTensor, block: tuple[int, int] | None) -> Weight:
    """An FP8 matrix times its scales. Reported as BF16, the type such checkpoints are made from."""
    table = _float8_table(tensor.dtype)
    rows_of = _scale_rows(tensor, scale, block)

    def read(start: int, stop: int) -> Rows:
        values: Rows = table[tensor.read(start, stop)]
        np.multiply(values, rows_of(start, stop), out=values)
        return values

    return Weight(tensor.name, tensor.shape, GGMLQuantizationType.BF16, read)


def _scale_rows(
    tensor: StoredTensor, scale: StoredTensor, block: tuple[int, int] | None
) -> Callable[[int, int], Scale]:
    """The scales of rows `start` to `stop`, ready to be multiplied. Raises SourceError for a shape that does not fit.

    One scale in all, one for each row, or one for each block of rows and columns.
    """
    n_rows, n_cols = tensor.n_rows, tensor.shape[-1]
    values = _read_all(scale)
    if values.size == 1:
        return lambda start, stop: values.reshape(1, 1)
    if values.size == n_rows and scale.shape[-1] in (1, n_rows):
        return lambda start, stop: values.reshape(n_rows, 1)[start:stop]
    if block is None or len(tensor.shape) != 2:
        raise SourceError(
            f"the scale {scale.name!r} of shape {scale.shape} does not fit {tensor.name!r} of shape {tensor.shape}",
            hint="config.json names no weight_block_size." if block is None else None,
        )
    if scale.shape != (-(-n_rows // block[0]), -(-n_cols // block[1])):
        raise SourceError(
            f"the scale {scale.name!r} of shape {scale.shape} does not fit {tensor.name!r} of shape {tensor.shape} "
            f"in blocks of {block[0]} x {block[1]}"
        )
    grid = values.reshape(scale.shape)
    return lambda start, stop: np.repeat(grid[np.arange(start, stop) // block[0]], block[1], axis=1)[:, :n_cols]


def _read_all(scale: StoredTensor) -> Scale:
    return weight_of(scale).read(0, scale.n_rows).ravel()
