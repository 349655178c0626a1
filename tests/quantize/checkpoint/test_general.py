"""What a model is called, and what else its folder tells about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quantize.errors import UnsupportedError
from quantize.source import open_source
from tests.quantize.checkpoint.conftest import Folder, make_folder


def values(path: Path, **options: Any) -> dict[str, Any]:
    return {k: v.value for k, v in open_source(path, **options).metadata.items()}


def test_a_snapshot_in_the_hubs_cache_is_called_by_its_id(tmp_path: Path) -> None:
    path = tmp_path / "models--some-lab--Tiny-Chat-1B-v2" / "snapshots" / "0123456789abcdef0123456789abcdef01234567"
    make_folder(path, "qwen3", n_shards=1)
    converted = values(path)
    assert converted["general.name"] == "Tiny Chat 1B v2"
    assert converted["general.organization"] == "Some Lab"
    assert converted["general.basename"] == "Tiny"
    assert converted["general.version"] == "v2"


def test_a_name_given_by_hand_wins(folder: Folder) -> None:
    assert values(folder.path, name="My Model")["general.name"] == "My Model"


@pytest.mark.parametrize(
    "text", ["---\n\t: [\n---\n", "---\nbase_model: 5\ntags: {}\n---\n", "\x00", "---\n- a\n---\n"]
)
def test_a_damaged_readme_is_no_reason_to_refuse(folder: Folder, text: str) -> None:
    (folder / "README.md").write_text(text)
    assert values(folder.path)["general.name"]


def test_a_readme_that_is_no_text_is_no_reason_to_refuse(folder: Folder) -> None:
    (folder / "README.md").write_bytes(b"\xff\xfe")
    model = open_source(folder.path)
    assert model.metadata["general.architecture"].value == "llama"
    assert any("model card was left out" in warning for warning in model.warnings)


def test_sampler_settings_of_the_makers_are_kept(folder: Folder) -> None:
    converted = values(folder.path)
    assert converted["general.sampling.temp"] == 0.6
    assert converted["general.sampling.penalty_repeat"] == 1.1


def pooled(tmp_path: Path, name: str, settings: dict[str, Any], *kinds: str) -> Path:
    path = make_folder(tmp_path / "model", name, n_shards=1).path
    modules = [
        {"idx": i, "path": f"{i}_{kind}", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (path / "modules.json").write_text(json.dumps(modules))
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    return path


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("bert", {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, 1),
        ("bert", {"pooling_mode": "cls"}, 2),
        ("qwen3", {"pooling_mode_lasttoken": True}, 3),
    ],
)
def test_embedding_models_keep_their_pooling(
    tmp_path: Path, name: str, settings: dict[str, Any], expected: int
) -> None:
    converted = values(pooled(tmp_path, name, settings, "Transformer", "Pooling", "Normalize"))
    assert converted[f"{name}.pooling_type"] == expected


def test_layers_after_pooling_are_left_out_with_a_warning(tmp_path: Path) -> None:
    path = pooled(tmp_path, "bert", {"pooling_mode": "mean"}, "Transformer", "Pooling", "Dense")
    (warning,) = open_source(path).warnings
    assert "after pooling" in warning


def test_a_pooling_the_engine_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="1_Pooling"):
        open_source(pooled(tmp_path, "bert", {"pooling_mode_max_tokens": True}, "Transformer", "Pooling"))
