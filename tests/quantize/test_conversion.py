"""A GGUF file becomes another one, whole or not at all, with figures of what it cost."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from gguf.constants import GGUFValueType

from quantize import Progress, convert, dry_run, pipeline
from quantize.blocks import PlainSearch
from quantize.errors import DestinationError, NoSpaceError, RecipeError, SourceError, WeightError
from quantize.importance import calibration
from quantize.model import MetadataValue, Model
from quantize.plan import make_plan
from quantize.recipe import Recipe
from quantize.report.quality import KEY, stored_summary
from quantize.types import parse_mix
from quantize.verify import slices
from tests.quantize.oracle import llama_quantize
from tests.quantize.synthetic import llama, read_metadata, read_tensors


def write(model: Model, path: Path, mix: str = "f32", split: int | None = None) -> Path:
    plan = make_plan(model, Recipe(parse_mix(mix)), path, matrix_names=None, split_bytes=split)
    pipeline.run(plan, PlainSearch(), fingerprint="x", threads=1)
    pipeline.finish(plan)
    return plan.files[0].path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(llama(), tmp_path_factory.mktemp("source") / "tiny-F32.gguf")


@pytest.fixture(autouse=True)
def little_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "N_CHUNKS", 5)
    monkeypatch.setattr(slices, "CHUNKS_PER_SLICE", 1)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_everything_happens_in_one_call(source: Path, tmp_path: Path) -> None:
    stages: list[str] = []

    def progress(found: Progress) -> None:
        if found.stage not in stages:
            stages.append(found.stage)
        assert 0 <= found.done <= found.total

    reports = (tmp_path / "r.json", tmp_path / "r.html")
    result = convert(
        source, tmp_path / "tiny-Q4_K_M.gguf", type="q4_k_m", threads=1, report_files=reports, progress=progress
    )
    assert stages == ["calibration text", "importance", "quantize", "evaluation text", "report"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "r.json", "tiny-Q4_K_M.gguf"]
    assert result.matrix == "auto"
    assert result.quality is not None
    overall = result.quality.evaluation.overall
    assert overall.positions == 3 * 255
    assert 0 < overall.divergence < 1
    assert {s.name for s in result.quality.evaluation.slices} == {"prose", "code", "chat"}
    assert [cause.name.split()[0] for cause in result.quality.evaluation.causes] == ["weights", "KV", "KV", "sampler"]
    assert set(result.quality.errors) == {
        name for name, (kind, _) in read_tensors(result.files[0]).items() if kind != "F32"
    }
    metadata = read_metadata(result.files[0])
    assert metadata["quantize.imatrix.entries_count"] == 15
    stored = stored_summary(str(metadata[KEY]))
    assert stored is not None
    assert stored["divergence"] == pytest.approx(overall.divergence, rel=1e-5)
    assert json.loads(reports[0].read_text())["overall"]["positions"] == 765
    assert json.loads(json.dumps(result.as_json()))["quality"]["overall"]["same_top"] == overall.same_top


def test_the_page_needs_nothing_from_outside(source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "tiny-Q8_0.gguf", type="q8_0", threads=1)
    page = tmp_path / "r.html"
    convert(source, tmp_path / "tiny-Q4_0.gguf", type="q4_0", threads=1, imatrix="off", report_files=(page,))
    text = page.read_text()
    assert "http" not in text
    assert "src=" not in text
    assert text.count("<svg") == 2
    assert "q8_0 (" in text  # the file beside it that was made before
    assert "q4_0 (" in text


def test_quantized_weights_lie_nearer_with_more_bits(source: Path, tmp_path: Path) -> None:
    found = {}
    for kind in ("q8_0", "q4_0"):
        result = convert(source, tmp_path / f"{kind}.gguf", type=kind, imatrix="off", threads=1)
        assert result.quality is not None
        found[kind] = result.quality.evaluation.overall
    assert found["q8_0"].divergence < found["q4_0"].divergence / 5
    assert found["q8_0"].same_top > found["q4_0"].same_top


def test_without_matrix_and_report_the_data_is_llama_quantize_s(source: Path, tmp_path: Path) -> None:
    result = convert(source, tmp_path / "ours.gguf", type="q4_k_m", imatrix="off", report=False, threads=2)
    llama_quantize(source, tmp_path / "theirs.gguf", int(parse_mix("q4_k_m").file_type))
    assert read_tensors(result.files[0]) == read_tensors(tmp_path / "theirs.gguf")
    assert KEY not in read_metadata(result.files[0])


def test_a_collected_matrix_can_be_kept_and_used_again(source: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.gguf"
    first = convert(source, tmp_path / "a.gguf", type="q4_k_m", save_imatrix=kept, report=False, threads=1)
    again = convert(source, tmp_path / "b.gguf", type="q4_k_m", imatrix=kept, report=False, threads=1)
    assert read_tensors(first.files[0]) == read_tensors(again.files[0])
    assert again.matrix == str(kept)
    with pytest.raises(RecipeError, match="no importance matrix is collected"):
        convert(source, tmp_path / "c.gguf", type="q8_0", save_imatrix=kept)


def test_a_user_s_text_calibrates(source: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat. " * 100)
    result = convert(source, tmp_path / "a.gguf", type="q4_k_m", calibration=text, report=False, threads=1)
    assert read_metadata(result.files[0])["quantize.imatrix.dataset"] == str(text)
    text.write_text("short")
    with pytest.raises(SourceError, match="5 tokens, too few"):
        convert(source, tmp_path / "b.gguf", type="q4_k_m", calibration=text, report=False, threads=1)


def test_an_interrupted_run_keeps_its_matrix_and_goes_on(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.gguf"
    monkeypatch.setattr(pipeline, "SLAB_VALUES", 8192)

    def interrupt(found: Progress) -> None:
        if found.stage == "quantize" and found.done > found.total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(source, out, type="q4_k_m", report=False, threads=1, progress=interrupt)
    assert not out.exists()
    stages = set()
    result = convert(source, out, type="q4_k_m", report=False, threads=1, progress=lambda p: stages.add(p.stage))
    assert stages == {"quantize"}
    assert result.pass_result.resumed > 0
    whole = convert(source, tmp_path / "whole.gguf", type="q4_k_m", report=False, threads=1)
    assert digest(whole.files[0]) == digest(out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.gguf", "whole.gguf"]


def test_a_pruned_model_is_measured_against_the_pruned_base(source: Path, tmp_path: Path) -> None:
    result = convert(source, tmp_path / "out.gguf", type="q4_k_m", prune_layers="0", threads=1)
    assert result.quality is not None
    assert "pruned" in result.quality.base
    assert read_metadata(result.files[0])["llama.block_count"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.gguf"]


def test_split_and_merge_give_back_the_same_tensors(source: Path, tmp_path: Path) -> None:
    parts = convert(source, tmp_path / "s.gguf", type="q8_0", split="400KB", report=False, threads=1)
    assert len(parts.files) > 2
    assert parts.files[0].name == f"s-00001-of-{len(parts.files):05d}.gguf"
    merged = convert(parts.files[0], tmp_path / "m.gguf", type="copy", threads=1)
    single = convert(source, tmp_path / "q.gguf", type="q8_0", report=False, threads=1)
    assert read_tensors(merged.files[0]) == read_tensors(single.files[0])
    assert "split.count" not in read_metadata(merged.files[0])
    assert read_metadata(merged.files[0])["general.file_type"] == 7


def test_quantizing_what_is_quantized_warns_of_double_loss(source: Path, tmp_path: Path) -> None:
    small = convert(source, tmp_path / "a.gguf", type="q4_0", imatrix="off", report=False, threads=1)
    again = dry_run(small.files[0], tmp_path / "b.gguf", type="q8_0")
    assert any("quantizing them again loses twice" in warning for warning in again.warnings)


@pytest.mark.parametrize("link", ["itself", "hard link", "symbolic link"])
def test_the_source_is_never_overwritten(link: str, source: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(source.read_bytes())
    out = path if link == "itself" else tmp_path / "link.gguf"
    if link == "hard link":
        os.link(path, out)
    elif link == "symbolic link":
        out.symlink_to(path)
    before = digest(path)
    with pytest.raises(DestinationError, match="is the source"):
        convert(path, out, type="q8_0", report=False)
    assert digest(path) == before


def test_the_partial_name_is_protected_too(source: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.gguf.part"
    path.write_bytes(source.read_bytes())
    with pytest.raises(DestinationError, match="is the source"):
        convert(path, tmp_path / "out.gguf", type="q8_0", report=False)


def test_a_full_disk_is_seen_before_anything_is_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr("shutil.disk_usage", lambda _folder: Usage)
    with pytest.raises(NoSpaceError, match=r"no space left for .*, 0\.00 GB free"):
        convert(source, tmp_path / "out.gguf", type="q8_0", report=False)
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_cannot_be_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match="no folder"):
        convert(source, tmp_path / "no" / "out.gguf", type="q8_0")
    with pytest.raises(DestinationError, match="is a folder"):
        convert(source, tmp_path, type="q8_0")


def test_an_existing_file_is_replaced_only_when_the_new_one_is_whole(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    convert(source, out, type="q4_0", report=False, threads=1)
    old = out.read_bytes()

    def fail(found: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(source, out, type="q8_0", report=False, threads=1, progress=fail)
    assert out.read_bytes() == old
    result = convert(source, out, type="q8_0", report=False, threads=1)
    assert any("will be replaced" in warning for warning in result.warnings)
    assert out.read_bytes() != old


def test_damaged_weights_leave_no_output(tmp_path: Path) -> None:
    path = write(llama(n_layer=1), tmp_path / "bad.gguf")
    data = bytearray(path.read_bytes())
    data[-8:-4] = b"\xff\xff\xff\x7f"
    path.write_bytes(bytes(data))
    with pytest.raises(WeightError, match=r"output_norm\.weight"):
        convert(path, tmp_path / "out.gguf", type="q4_0", imatrix="off", report=False)
    assert not (tmp_path / "out.gguf").exists()


def test_nonsense_is_refused_before_anything_is_written(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    for settings in (
        {"type": "q9"},
        {"type": "q4_0", "tensors": ("nothing=q8_0",)},
        {"type": "copy", "pure": True},
        {"type": "q4_0", "prune_layers": "9"},
        {"type": "q4_0", "split": "0"},
        {"type": "iq2_xs", "imatrix": "off"},
    ):
        with pytest.raises(RecipeError):
            convert(source, out, **settings)
    with pytest.raises(SourceError):
        convert(source, out, type="q4_0", imatrix=tmp_path / "none.gguf")
    assert list(tmp_path.iterdir()) == []


def test_an_embedding_model_is_quantized_without_figures(tmp_path: Path) -> None:
    model = llama(n_layer=1)
    causal = MetadataValue(False, GGUFValueType.BOOL)
    path = write(replace(model, metadata=model.metadata | {"llama.attention.causal": causal}), tmp_path / "e.gguf")
    result = convert(path, tmp_path / "out.gguf", type="q4_k_m", threads=1)
    assert result.quality is None
    assert any("predicts no tokens" in warning for warning in result.warnings)


def test_heads_of_an_odd_size_are_measured_without_kv_types(tmp_path: Path) -> None:
    path = write(llama(n_layer=1, embd=96, heads=4, kv_heads=4), tmp_path / "odd.gguf")
    result = convert(path, tmp_path / "out.gguf", type="q8_0", threads=1)
    assert result.quality is not None
    assert [cause.name.split()[0] for cause in result.quality.evaluation.causes] == ["weights", "sampler"]


def test_the_output_has_a_name_of_its_own(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = convert(source, type="iq4_nl", imatrix="off", report=False, threads=1)
    assert [path.name for path in result.files] == ["tiny-IQ4_NL.gguf"]


def test_a_report_that_fails_does_not_lose_the_file(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "split_chunks", lambda _tokens: [])
    result = convert(source, tmp_path / "out.gguf", type="q8_0", threads=1)
    assert result.quality is None
    assert any(warning.startswith("no quality report") for warning in result.warnings)
    assert stored_summary(str(read_metadata(tmp_path / "out.gguf")[KEY])) is None


def test_the_plan_says_everything_before_a_weight_is_read(source: Path, tmp_path: Path) -> None:
    plan = dry_run(source, tmp_path / "out.gguf", type="q4_k_m", tensors=("attn_v=q8_0",))
    result = convert(
        source, tmp_path / "out.gguf", type="q4_k_m", tensors=("attn_v=q8_0",), imatrix="off", report=False
    )
    found = plan.as_json()
    assert isinstance(found["tensors"], list)
    written = read_tensors(result.files[0])
    assert {t["name"]: t["type"].upper() for t in found["tensors"]} == {
        name: kind for name, (kind, _) in written.items()
    }
