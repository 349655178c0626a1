"""The GPUs that a load may use, with what the user asked of them checked.

Knows the engine's devices and the settings; knows no model. Invariant: what is returned is in the engine's order and
holds what the engine will use, so the planner counts the same devices.
"""

from __future__ import annotations

from localrun.errors import UsageError
from localrun.hardware.devices import Device
from localrun.llama.devices import gpu_devices, gpu_is_compiled_in
from localrun.llama.rpc import add_rpc_servers
from localrun.params import EngineParams


def devices_for(params: EngineParams) -> list[Device]:
    """The devices of a load with these parameters; RPC servers among them are connected now.

    Raises `UsageError` for a device that is not there or cannot do what is asked, `EngineError` for an RPC server that
    cannot be used.
    """
    if params.gpu_layers == 0:
        return []
    spread = params.spread
    add_rpc_servers(spread.rpc)
    devices = gpu_devices() if spread.rpc or gpu_is_compiled_in() else []
    if not devices:
        return []
    count = f"the engine sees {len(devices)} GPU{'s' if len(devices) > 1 else ''}"
    if len(spread.tensor_split) > len(devices):
        raise UsageError(f"tensor-split has {len(spread.tensor_split)} proportions, and {count}", hint=_SEE)
    if spread.main_gpu is not None and spread.main_gpu >= len(devices):
        raise UsageError(f"main-gpu is {spread.main_gpu}, and {count}, counted from 0", hint=_SEE)
    if spread.split_mode == "none":
        return [devices[spread.main_gpu or 0]]
    unable = next((device for device in devices if not device.splits_rows), None)
    if spread.split_mode == "row" and unable is not None:
        raise UsageError(
            f"split-mode row does not work with {unable.name} ({unable.backend}): it cannot share the rows of a matrix",
            hint="--split-mode layer works with every GPU",
        )
    return devices


_SEE = "`localrun doctor` lists them"
