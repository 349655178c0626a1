"""How one model is spread over several devices: llama.cpp's own ways, as a validated value.

Knows the settings' names and ranges; knows no device. Invariant: an instance that exists makes sense by itself; whether
this machine has so many devices is checked where they are known (`localrun.llama.devices`).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, get_args

from localrun.errors import UsageError
from localrun.kinds import check_kinds, shown

SplitMode = Literal["none", "layer", "row", "tensor"]

_ENDPOINT = re.compile(r"[A-Za-z0-9._-]+:(\d{1,5})")


@dataclass(frozen=True, slots=True)
class Spread:
    """What `--split-mode`, `--tensor-split`, `--main-gpu`, `--cpu-moe`, `--n-cpu-moe` and `--rpc` ask for.

    The default leaves everything to the planner and the engine: whole layers, in proportion to free memory.
    """

    split_mode: SplitMode | None = None
    """`none`: one GPU; `layer`: whole layers; `row`: the rows of each matrix; `tensor`: matrices and KV cache."""
    tensor_split: tuple[float, ...] = ()
    """Proportions by device, in the order that `localrun plan` shows; what is left out is 0."""
    main_gpu: int | None = None
    """The GPU to use with `none`."""
    cpu_moe: bool = False
    """Keep the experts of every layer in RAM."""
    n_cpu_moe: int | None = None
    """Keep the experts of the first n layers in RAM; None: as many as do not fit elsewhere."""
    rpc: tuple[str, ...] = ()
    """`host:port` of llama.cpp RPC servers, whose devices are used like GPUs of this machine."""

    def __post_init__(self) -> None:
        check_kinds(self)
        if self.split_mode is not None and self.split_mode not in get_args(SplitMode):
            raise UsageError(f"split-mode is {self.split_mode!r}", hint=f"one of {', '.join(get_args(SplitMode))}")
        if any(not math.isfinite(share) or share < 0 for share in self.tensor_split):
            raise UsageError(f"tensor-split is {_joined(self.tensor_split)}: a proportion is 0 or more, and finite")
        if self.tensor_split and not sum(self.tensor_split):
            raise UsageError(f"tensor-split is {_joined(self.tensor_split)}: at least one device must get something")
        for name, count in (("main-gpu", self.main_gpu), ("n-cpu-moe", self.n_cpu_moe)):
            if count is not None and count >= 2**31:
                raise UsageError(f"{name} is {shown(count)}, above {2**31 - 1}")
        if self.main_gpu is not None and self.main_gpu < 0:
            raise UsageError(f"main-gpu is {shown(self.main_gpu)}, below 0", hint="--gpu-layers 0 uses no GPU")
        if self.main_gpu is not None and self.split_mode != "none":
            raise UsageError(
                "main-gpu chooses the one GPU of split-mode none; other modes use every GPU",
                hint="add --split-mode none, or give each GPU its share with --tensor-split",
            )
        if self.tensor_split and self.split_mode == "none":
            raise UsageError("tensor-split shares a model out, and split-mode none puts it on one GPU")
        if self.n_cpu_moe is not None and self.n_cpu_moe < 0:
            raise UsageError(f"n-cpu-moe is {shown(self.n_cpu_moe)}, below 0")
        if self.cpu_moe and self.n_cpu_moe is not None:
            raise UsageError(
                "cpu-moe keeps the experts of all layers in RAM, n-cpu-moe those of some: give one of them"
            )
        for endpoint in self.rpc:
            found = _ENDPOINT.fullmatch(endpoint)
            if found is None or not 0 < int(found[1]) < 65536:
                raise UsageError(f"rpc names {endpoint!r}", hint="a server is HOST:PORT, as in 192.168.1.5:50052")

    def experts_in_ram(self, n_layers: int) -> int | None:
        """Layers whose experts the user wants in RAM; None where the planner may choose."""
        if self.cpu_moe:
            return n_layers
        return None if self.n_cpu_moe is None else min(self.n_cpu_moe, n_layers)

    def describe(self) -> str:
        """What departs from the default, on one line; "" where nothing does."""
        parts = [
            f"split mode {self.split_mode}" if self.split_mode else "",
            f"tensor split {_joined(self.tensor_split)}" if self.tensor_split else "",
            f"main GPU {self.main_gpu}" if self.main_gpu is not None else "",
            "experts in RAM" if self.cpu_moe else "",
            f"experts of {self.n_cpu_moe} layers in RAM" if self.n_cpu_moe is not None else "",
            f"RPC {','.join(self.rpc)}" if self.rpc else "",
        ]
        return ", ".join(part for part in parts if part)


def _joined(shares: tuple[float, ...]) -> str:
    return ",".join(f"{share:g}" for share in shares)
