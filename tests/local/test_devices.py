"""Which devices a load may use, and what is refused before the engine is asked."""

from __future__ import annotations

from typing import Any

import pytest

from localrun.errors import EngineError, UsageError
from localrun.hardware.devices import Device
from localrun.llama import rpc
from localrun.local import devices
from localrun.local.devices import devices_for
from localrun.local.loading import unused_gpu_settings
from localrun.params import EngineParams
from localrun.spread import Spread

GIB = 1 << 30
FIRST = Device("first", "gpu", 24 * GIB, 20 * GIB, "CUDA", splits_rows=True)
SECOND = Device("second", "gpu", 12 * GIB, 10 * GIB, "CUDA", splits_rows=True)
OTHER = Device("other", "gpu", 12 * GIB, 10 * GIB, "Vulkan")


def see(monkeypatch: pytest.MonkeyPatch, *seen: Device) -> None:
    monkeypatch.setattr(devices, "gpu_is_compiled_in", lambda: True)
    monkeypatch.setattr(devices, "gpu_devices", lambda: list(seen))


def params(gpu_layers: int | None = None, **spread: Any) -> EngineParams:
    return EngineParams(gpu_layers=gpu_layers, spread=Spread(**spread))


def test_all_devices_are_used_in_the_engines_order(monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, FIRST, SECOND)
    assert devices_for(params()) == [FIRST, SECOND]
    assert devices_for(params(split_mode="row")) == [FIRST, SECOND]
    assert devices_for(params(gpu_layers=0)) == []


def test_one_gpu_is_the_first_or_the_one_that_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, FIRST, SECOND)
    assert devices_for(params(split_mode="none")) == [FIRST]
    assert devices_for(params(split_mode="none", main_gpu=1)) == [SECOND]
    with pytest.raises(UsageError, match="main-gpu is 2, and the engine sees 2 GPUs"):
        devices_for(params(split_mode="none", main_gpu=2))


def test_more_proportions_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, FIRST)
    with pytest.raises(UsageError, match=r"2 proportions, and the engine sees 1 GPU$"):
        devices_for(params(tensor_split=(1.0, 1.0)))


def test_rows_are_split_only_where_every_gpu_can(monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, FIRST, OTHER)
    with pytest.raises(UsageError, match=r"other \(Vulkan\)"):
        devices_for(params(split_mode="row"))


def test_without_a_gpu_every_setting_that_means_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "gpu_is_compiled_in", lambda: False)
    asked = params(gpu_layers=5, split_mode="none", main_gpu=0)
    assert devices_for(asked) == []
    assert unused_gpu_settings(asked) == ["--gpu-layers", "--split-mode", "--main-gpu"]
    assert unused_gpu_settings(params(tensor_split=(1.0,))) == ["--tensor-split"]
    assert unused_gpu_settings(params(gpu_layers=0, split_mode="layer")) == []
    assert unused_gpu_settings(params(cpu_moe=True)) == []


def test_rpc_servers_need_an_engine_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "supports_rpc", lambda: False)
    with pytest.raises(UsageError, match="built without RPC") as caught:
        devices_for(params(rpc=("127.0.0.1:50052",)))
    assert "-DGGML_RPC=on" in (caught.value.hint or "")


def test_an_rpc_server_that_is_not_there_is_an_error_and_not_the_end_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rpc, "supports_rpc", lambda: True)
    with pytest.raises(EngineError, match=r"the RPC server 127\.0\.0\.1:9 cannot be used"):
        devices_for(params(rpc=("127.0.0.1:9",)))
