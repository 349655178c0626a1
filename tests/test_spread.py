"""What may be asked of several devices: values that make sense, and errors that name the one that does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from localrun.config import Config
from localrun.errors import UsageError
from localrun.params import EngineParams
from localrun.spread import Spread


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"split_mode": "rows"}, "'rows'"),
        ({"tensor_split": (1.0, -1.0)}, "1,-1"),
        ({"tensor_split": (float("nan"),)}, "nan"),
        ({"tensor_split": (float("inf"), 1.0)}, "inf,1"),
        ({"tensor_split": (0.0, 0.0)}, "0,0"),
        ({"split_mode": "none", "tensor_split": (1.0, 1.0)}, "none"),
        ({"split_mode": "none", "main_gpu": -1}, "-1"),
        ({"main_gpu": 1}, "split-mode none"),
        ({"split_mode": "row", "main_gpu": 1}, "split-mode none"),
        ({"n_cpu_moe": -1}, "-1"),
        ({"cpu_moe": True, "n_cpu_moe": 3}, "n-cpu-moe"),
        ({"rpc": ("host",)}, "'host'"),
        ({"rpc": ("host:0",)}, "'host:0'"),
        ({"rpc": ("host:65536",)}, "'host:65536'"),
        ({"rpc": ("http://host:50052",)}, "'http://host:50052'"),
        ({"rpc": ("",)}, "''"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_value(values: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError) as caught:
        Spread(**values)
    assert named in caught.value.message


def test_splitting_by_tensors_needs_flash_attention() -> None:
    EngineParams(spread=Spread(split_mode="tensor"))
    with pytest.raises(UsageError, match="flash attention"):
        EngineParams(spread=Spread(split_mode="tensor"), flash_attention=False)


def test_flags_variables_and_the_file_all_set_it(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('split_mode = "layer"\ntensor_split = [3, 1]\nrpc = ["a:1", "b:2"]\n[models.big]\ncpu_moe = true\n')
    config = Config({"tensor_split": "1,1"}, file=file, environment={"LOCALRUN_RPC": "c:3, d:4"})
    assert config.engine().spread == Spread("layer", (1.0, 1.0), rpc=("c:3", "d:4"))
    assert config.engine("big").spread.cpu_moe
    assert Config(file=file, environment={}).engine().spread == Spread("layer", (3.0, 1.0), rpc=("a:1", "b:2"))
    assert Config(environment={"LOCALRUN_SPLIT_MODE": "none", "LOCALRUN_MAIN_GPU": "1"}).engine().spread == Spread(
        "none", main_gpu=1
    )


@pytest.mark.parametrize("value", ["3;1", "a,b", "3,,1", ""])
def test_a_proportion_that_is_no_number_is_an_error(value: str) -> None:
    with pytest.raises(UsageError, match="tensor-split"):
        Config({"tensor_split": value}, environment={}).engine()


def test_experts_in_ram_are_never_more_than_the_layers() -> None:
    assert Spread().experts_in_ram(8) is None
    assert Spread(cpu_moe=True).experts_in_ram(8) == 8
    assert Spread(n_cpu_moe=3).experts_in_ram(8) == 3
    assert Spread(n_cpu_moe=99).experts_in_ram(8) == 8
    assert Spread(n_cpu_moe=0).experts_in_ram(8) == 0
