"""`localrun quantize`: one clear line for what is wrong, the result alone on stdout."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from localrun.cli.main import run
from localrun.cli.quantize_progress import _line, _time
from quantize import pipeline
from quantize.blocks import PlainSearch
from quantize.importance import calibration
from quantize.plan import make_plan
from quantize.progress import Progress
from quantize.recipe import Recipe
from quantize.types import parse_mix
from quantize.verify import slices
from tests.quantize.synthetic import llama


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "tiny-F32.gguf"
    plan = make_plan(llama(embd=96, ff=352, heads=3, kv_heads=1), Recipe(parse_mix("f32")), path, matrix_names=None)
    pipeline.run(plan, PlainSearch(), fingerprint="x", threads=1)
    pipeline.finish(plan)
    return path


@pytest.fixture(autouse=True)
def little_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(calibration, "N_CHUNKS", 5)
    monkeypatch.setattr(slices, "CHUNKS_PER_SLICE", 1)
    monkeypatch.chdir(tmp_path)


Capture = pytest.CaptureFixture[str]


def quantize(*arguments: object) -> int:
    return run(["quantize", *map(str, arguments)])


def test_stdout_is_the_file_s_name(source: Path, tmp_path: Path, capsys: Capture) -> None:
    assert quantize(source, "--type", "q4_k_m", "--imatrix", "off", "--no-report") == 0
    out, err = capsys.readouterr()
    assert out == "tiny-Q4_K_M.gguf\n"
    assert (tmp_path / "tiny-Q4_K_M.gguf").read_bytes()[:4] == b"GGUF"
    assert err.count("warning:") == 1
    assert "rows that their type does not divide" in err
    assert "quantize: 100 %" in err
    assert "\x1b" not in err


def test_the_result_as_json_has_the_figures(source: Path, tmp_path: Path, capsys: Capture) -> None:
    out_file = tmp_path / "o.gguf"
    assert quantize(source, "-o", out_file, "-t", "Q8_0", "--report", "r.html", "--json", "--threads", 1) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["files"] == [str(out_file)]
    assert found["quality"]["overall"]["positions"] == 765
    assert found["bits_per_weight"] > 8
    assert found["timings"]["total_s"] > 0
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")


def test_quiet_is_quiet(source: Path, capsys: Capture) -> None:
    assert quantize(source, "-t", "q4_0", "--effort", "fast", "--no-report", "-q") == 0
    assert capsys.readouterr().err == ""


def test_a_dry_run_writes_nothing_and_shows_every_tensor(source: Path, tmp_path: Path, capsys: Capture) -> None:
    assert quantize(source, "--type", "q4_k_m", "--dry-run") == 0
    text = capsys.readouterr().out
    assert "blk.1.ffn_down.weight" in text
    assert "bits per weight" in text
    assert quantize(source, "--type", "q4_k_m", "--dry-run", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert len(plan["tensors"]) == 20
    assert plan["substitutions"]["count"] == 15
    assert list(tmp_path.iterdir()) == []


def test_strict_makes_substitutions_an_error(source: Path, tmp_path: Path, capsys: Capture) -> None:
    assert quantize(source, "--type", "q4_k_m", "--strict") == 1
    assert "rows that their type does not divide" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "no --type is given"),
        (["--size", "2GB"], 2, "--size is not there yet"),
        (["--bpw", "4.5"], 2, "--bpw is not there yet"),
        (["-t", "q4_0", "--effort", "high"], 2, "--effort high is not there yet"),
        (["-t", "q4_0", "--effort", "much"], 2, "unknown effort 'much'"),
        (["-t", "q4_km"], 2, "unknown type 'q4_km'"),
        (["-t", "q4_0", "--tensor", "attn_v"], 2, "'attn_v' is not REGEX=TYPE"),
        (["-t", "q4_0", "--tensor", "attn_k=q4_k"], 2, "rows of 96 values"),
        (["-t", "q4_0", "--prune-layers", "7"], 2, "there is no layer 7"),
        (["-t", "q4_0", "--split", "big"], 2, "'big' is no size"),
        (["-t", "q4_0", "--imatrix", "none.gguf"], 2, "cannot read none.gguf"),
        (["-t", "iq1_s", "--imatrix", "off"], 2, "unknown"),
        (["-t", "q4_0", "-o", "absent/o.gguf"], 2, "no folder"),
        (["-t", "q4_0", "--calibration", "none.txt"], 2, "cannot read none.txt"),
        (["-t", "q4_0", "--dry-run", "--report", "r.json"], 2, "--report needs a report"),
        (["-t", "q4_0", "--threads", "0"], 2, "threads"),
        (["-t", "q4_0", "-o", ""], 2, "is no name of a file"),
        (["-t", "q4_0", "-o", "."], 2, "is no name of a file"),
        (["-t", "q4_0", "-o", ".."], 2, "is a folder"),
        (["-t", "q4_0", "--imatrix", ""], 2, "cannot read"),
        (["-t", "q4_0", "--report", "r.txt"], 2, "--report 'r.txt' is neither .json nor .html"),
        (["-t", "q4_0", "--report", "r.json", "--report", "report"], 2, "--report 'report' is neither"),
        (["-t", "q4_0", "--report", ""], 2, "is neither .json nor .html"),
        (["-t", "q4_0", "--report", "absent/r.json"], 2, "no folder"),
        (["-t", "q4_0", "--report", "r.json", "-o", "r.json"], 2, "which is written too"),
        (["-t", "q4_0", "--report", "r.json", "--report", "./r.json"], 2, "which is written too"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_leaves_nothing(
    arguments: list[str], code: int, message: str, source: Path, tmp_path: Path, capsys: Capture
) -> None:
    if message == "unknown":  # the coarse types need rows of 256 to be reached at all
        source = source.with_name("wide.gguf")
        plan = make_plan(llama(n_layer=1, tied=False), Recipe(parse_mix("f32")), source, matrix_names=None)
        pipeline.run(plan, PlainSearch(), fingerprint="x", threads=1)
        pipeline.finish(plan)
        message = "needs an importance matrix"
    assert quantize(source, *arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert message in lines[0]
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_the_source_is_never_overwritten(source: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "link.gguf").symlink_to(source)
    before = hashlib.sha256(source.read_bytes()).hexdigest()
    assert quantize(source, "-o", "link.gguf", "-t", "q8_0", "--no-report") == 2
    assert "is the source" in capsys.readouterr().err
    assert hashlib.sha256(source.read_bytes()).hexdigest() == before


def test_an_empty_name_of_a_source_is_no_folder(tmp_path: Path, capsys: Capture) -> None:
    assert quantize("", "-t", "q4_0") == 2
    assert "the source is an empty name" in capsys.readouterr().err


def test_a_pipe_is_never_replaced_by_a_file(source: Path, tmp_path: Path, capsys: Capture) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    (tmp_path / "link.json").symlink_to(pipe)
    for name in ("pipe.json", "link.json"):
        for arguments in (["-o", name, "--no-report"], ["-o", "o.gguf", "--report", name]):
            assert quantize(source, "-t", "q8_0", *arguments) == 2
            assert f"{name} is no regular file" in capsys.readouterr().err
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.json", "pipe.json"]


@pytest.mark.parametrize("link", ["itself", "symbolic", "hard"])
def test_a_report_never_lands_on_the_source(source: Path, tmp_path: Path, capsys: Capture, link: str) -> None:
    model = tmp_path / "model.json"
    model.write_bytes(source.read_bytes())
    report = tmp_path / ("model.json" if link == "itself" else "r.json")
    if link == "symbolic":
        report.symlink_to(model)
    elif link == "hard":
        os.link(model, report)
    before = model.read_bytes()
    assert quantize(model, "-o", "o.gguf", "-t", "q8_0", "--report", report) == 2
    assert "is the source" in capsys.readouterr().err
    assert model.read_bytes() == before
    assert not (tmp_path / "o.gguf").exists()


def test_a_source_that_is_no_model_is_refused(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "page.gguf").write_text("<!DOCTYPE html><html>")
    for name in ("page.gguf", "."):
        assert quantize(name, "-t", "q4_0") == 2
        assert capsys.readouterr().err.startswith("error: ")


def test_a_hub_id_that_is_not_here_is_a_model_not_found(capsys: Capture) -> None:
    assert quantize("owner/absent", "-t", "q4_0", "--offline") == 3
    assert "owner/absent is not on this machine" in capsys.readouterr().err


def test_a_model_s_name_that_is_unknown_is_a_model_not_found(capsys: Capture) -> None:
    assert quantize("nosuch:1b", "-t", "q4_0", "--offline") == 3
    assert "nosuch:1b" in capsys.readouterr().err


def test_a_checkpoint_in_the_hub_s_cache_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = tmp_path / "hub" / "models--owner--repo" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"architectures": ["NoSuchModel"]}')
    (folder / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    assert quantize("owner/repo", "-t", "q4_0", "--offline") == 2
    assert "NoSuchModel" in capsys.readouterr().err


def test_the_command_line_starts_without_numpy(tmp_path: Path) -> None:
    program = (
        "import sys; from localrun.cli.main import run; run(['quantize', '--help']);"
        "sys.exit(any(name in sys.modules for name in ('numpy', 'gguf', 'llama_cpp', 'huggingface_hub')))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 0


def test_progress_says_what_is_left() -> None:
    line = _line(Progress("quantize", "blk.0.attn_q.weight", 50, 200, 10.0, 30_000_000))
    assert line == "quantize: 25 %, blk.0.attn_q.weight, 3 MB/s, 30 s left"
    assert _time(125) == "2:05 min"


@pytest.mark.parametrize("name", ["nothing", "nothing.gguf", "folder/nothing.gguf", "/nothing.gguf", "~/nothing.gguf"])
def test_a_source_that_is_not_there_is_a_model_not_found(name: str, tmp_path: Path, capsys: Capture) -> None:
    assert quantize(name, "-t", "q8_0") == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == f"error: {name} does not exist"


def test_a_stranger_s_file_is_replaced_with_force_alone(source: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "thesis.gguf"
    out.write_bytes(b"all my work")
    assert quantize(source, "-o", out, "-t", "q8_0", "--no-report") == 2
    assert "exists, and no earlier run made it" in capsys.readouterr().err
    assert out.read_bytes() == b"all my work"
    assert quantize(source, "-o", out, "-t", "q8_0", "--no-report", "--force") == 0
    assert out.read_bytes()[:4] == b"GGUF"
