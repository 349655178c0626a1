"""`pull`, `list`, `show` and `rm` as a user meets them: output, exit codes, signals."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from localrun.cli.main import run
from tests.catalog.servers import Served, hub_server, web_server
from tests.gguf.writer import F32, STRING, gguf_bytes, write_gguf

MODEL = gguf_bytes(tensors=[("token_embd.weight", (64, 4), 0), ("w", (1024, 1024), 0)])
NAME = "hf:o/tiny-GGUF:Q4_0"
PROGRAM = "from localrun.cli.main import main; main()"


@pytest.fixture
def hub() -> Iterator[Served]:
    with hub_server() as served:
        served.files["/o/tiny-GGUF/tiny-Q4_0.gguf"] = MODEL
        yield served


@pytest.fixture
def environment(tmp_path: Path, home: Path, hub: Served) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "PYTHONPATH", "VIRTUAL_ENV")}
    return {
        **kept,
        "HOME": str(tmp_path / "user"),
        "LOCALRUN_HOME": str(home),
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "hf"),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }


@dataclass
class Run:
    stdout: str
    stderr: str


class Localrun:
    """Runs a command line in this process, as the entry point does."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> Run:
        self.capsys.readouterr()
        actual = run(list(arguments))
        stdout, stderr = self.capsys.readouterr()
        assert actual == code, stderr
        assert "Traceback" not in stderr
        assert "\x1b" not in stdout + stderr
        if code:
            assert stdout == ""
        return Run(stdout, stderr)


@pytest.fixture
def localrun(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Localrun:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return Localrun(capsys)


def test_pull_prints_name_and_path_and_keeps_progress_off_stdout(localrun: Localrun, hub: Served) -> None:
    result = localrun("pull", NAME)
    name, path = result.stdout.rstrip("\n").split("\t")
    assert name == NAME
    assert Path(path).read_bytes() == MODEL
    assert result.stderr.splitlines()[0] == "fetching tiny-Q4_0.gguf (4 MB)"
    hub.requests.clear()
    again = localrun("pull", NAME, "--offline")
    assert again.stdout == result.stdout
    assert again.stderr == ""
    assert hub.requests == []


def test_pull_of_the_unknown_is_exit_code_3(localrun: Localrun, hub: Served) -> None:
    result = localrun("pull", "smolm2:135m", code=3)
    assert result.stderr.splitlines()[0] == "error: no model 'smolm2:135m' is known"
    assert result.stderr.splitlines()[1].startswith("hint: did you mean smollm2:135m")
    assert localrun("pull", NAME, "--offline", code=3)
    assert hub.requests == []


def test_pull_of_a_malformed_name_is_exit_code_2(localrun: Localrun) -> None:
    assert localrun("pull", "hf:nothing", code=2).stderr.startswith(
        "error: 'hf:nothing' is no hub model\nhint: write hf:"
    )


def test_ctrl_c_during_a_pull_is_130_and_the_next_pull_goes_on(
    localrun: Localrun, environment: dict[str, str], hub: Served, tmp_path: Path
) -> None:
    hub.faults.slow_s = 0.03
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "pull", NAME], env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    partial = tmp_path / "hf" / "hub" / "models--o--tiny-GGUF" / "blobs"
    deadline = time.monotonic() + 30
    while not any(p.stat().st_size >= 1 << 20 for p in partial.glob("*.incomplete")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=20)
    assert process.returncode == 130
    assert stdout == b""
    assert b"Traceback" not in stderr
    assert b"to go on" in stderr
    hub.faults.slow_s = 0
    localrun("pull", NAME)
    assert len(hub.ranges) == 1


def test_list_shows_what_is_here(localrun: Localrun) -> None:
    empty = localrun("list")
    assert empty.stdout == ""
    assert "localrun pull smollm2:135m" in empty.stderr
    assert json.loads(localrun("list", "--json").stdout) == []
    localrun("pull", NAME)
    lines = localrun("list").stdout.splitlines()
    assert lines[0].split() == ["NAME", "QUANT", "SIZE", "WHERE"]
    assert lines[1].split() == [NAME, "Q4_0", "4", "MB", "Hugging", "Face", "cache"]
    (row,) = json.loads(localrun("list", "--json").stdout)
    assert row["place"] == "hub"
    assert row["size"] == len(MODEL)
    assert row["problem"] is None
    assert localrun("show", row["name"]).stdout


def test_list_says_what_cannot_be_used_and_why(localrun: Localrun, tmp_path: Path) -> None:
    manifest = tmp_path / "user" / ".ollama" / "models" / "manifests" / "registry.ollama.ai" / "library" / "m" / "1b"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{")
    assert "m:1b (Ollama) cannot be used: the manifest is damaged" in localrun("list").stderr


def test_list_says_which_folder_it_could_not_look_into(
    localrun: Localrun, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = home / "cache" / "models"
    monkeypatch.setattr("localrun.catalog.local.closed_folders", lambda: [closed])
    assert f"warning: {closed} cannot be read: models in it are not listed" in localrun("list").stderr


def test_list_catalog_shows_what_could_be_fetched(localrun: Localrun) -> None:
    lines = localrun("list", "--catalog").stdout.splitlines()
    assert len(lines) > 20
    assert any(line.startswith("smollm2:135m ") and "Apache-2.0" in line for line in lines)
    rows = {row["name"]: row for row in json.loads(localrun("list", "--all", "--json").stdout)}
    assert rows["smollm2:135m"]["default"] is True
    assert rows["smollm2:135m"]["here"] is False
    assert rows["qwen3:8b"]["sources"][0].startswith("hf:")


def test_show_tells_what_a_file_is(localrun: Localrun, tmp_path: Path) -> None:
    made = {
        "localrun.quantize.bpw": (F32, 4.5),
        "localrun.quantize.recipe": "fast",
        "localrun.quantize.log": ["a", "b"],
    }
    path = write_gguf(tmp_path / "mödel 1.gguf", made)
    facts = json.loads(localrun("show", str(path), "--json").stdout)
    assert facts["architecture"] == "llama"
    assert facts["context"] == 128
    assert facts["quantization"] == "F32"
    assert facts["chat_template"] is True
    assert facts["tensors"] == {"F32": 2, "Q4_0": 1}
    assert facts["quantize"] == {
        "localrun.quantize.bpw": 4.5, "localrun.quantize.recipe": "fast", "localrun.quantize.log": ["a", "b"],
    }  # fmt: skip
    assert facts["sha256"] is None
    assert facts["problem"] is None
    assert len(json.loads(localrun("show", str(path), "--json", "--sha256").stdout)["sha256"]) == 64
    text = localrun("show", str(path)).stdout
    assert "mödel 1" in text
    assert "recipe: fast" in text
    assert localrun("show", str(path), "--template").stdout == "{{ messages[0].content }}"


def test_show_tells_the_quality_in_words(localrun: Localrun, tmp_path: Path) -> None:
    report = {
        "status": "measured", "positions": 3060.0, "perplexity_base": 21.5, "perplexity": 22.25, "divergence": 0.053718,
        "divergence_error": 0.00069, "same_top": 0.878758, "base": "tiny.gguf (f32)",
        "slices": {"prose": {"divergence": 0.05}, "code": {"divergence": 0.06}},
    }  # fmt: skip
    made = {"localrun.quantize.report": json.dumps(report) + " " * 500}
    path = write_gguf(tmp_path / "m.gguf", made)
    text = localrun("show", str(path)).stdout
    assert "quality: KL divergence 0.05372 ± 0.00069 (prose 0.05, code 0.06)\n" in text
    assert "87.9% the same top token, perplexity 22.25 after 21.5\n" in text
    assert "measured against tiny.gguf (f32), 3,060 positions\n" in text
    facts = json.loads(localrun("show", str(path), "--json").stdout)
    assert facts["quantize"]["localrun.quantize.report"]["divergence"] == 0.053718
    path = write_gguf(tmp_path / "n.gguf", {"localrun.quantize.report": '{"status":"not measured"}   '})
    assert "quality: not measured\n" in localrun("show", str(path)).stdout
    path = write_gguf(tmp_path / "o.gguf", {"localrun.quantize.report": '{"status":"measured","slices":[]}'})
    assert 'report: {"status": "measured", "slices": []}\n' in localrun("show", str(path)).stdout


def test_show_of_a_base_model_says_so(localrun: Localrun, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "base.gguf", {"tokenizer.chat_template": None})
    assert "no (a base model)" in localrun("show", str(path)).stdout
    assert "has no chat template" in localrun("show", str(path), "--template", code=2).stderr


def test_show_of_what_cannot_be_run_says_why(localrun: Localrun, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", {"general.architecture": "nope", "general.tags": (STRING, ["x"])})
    assert "architecture 'nope'" in json.loads(localrun("show", str(path), "--json").stdout)["problem"]
    path.write_bytes(path.read_bytes()[:-3000])
    assert localrun("show", str(path), code=2).stderr.startswith(f"error: {path} is cut short: it needs ")


def test_show_of_a_catalogue_model_that_is_not_here_tells_what_is_known(localrun: Localrun, hub: Served) -> None:
    result = localrun("show", "qwen3:8b")
    assert "hf:unsloth/Qwen3-8B-GGUF" in result.stdout
    assert "download    5.0 GB\n" in result.stdout
    assert "localrun pull qwen3:8b" in result.stderr
    assert json.loads(localrun("show", "qwen3:8b", "--json").stdout)["here"] is False
    assert "is not on this machine" in localrun("show", NAME, code=3).stderr
    assert hub.requests == []


def test_rm_asks_or_needs_yes_and_frees_the_space(localrun: Localrun, hub: Served) -> None:
    hub.files["/o/tiny-GGUF/tiny-Q8_0.gguf"] = MODEL[:-1] + b"!"
    path = Path(localrun("pull", NAME).stdout.split("\t")[1].rstrip("\n"))
    kept = Path(localrun("pull", "hf:o/tiny-GGUF:Q8_0").stdout.split("\t")[1].rstrip("\n"))
    assert "add --yes" in localrun("rm", NAME, code=2).stderr
    blob = path.resolve()
    assert blob.exists()
    assert localrun("rm", NAME, "--yes").stderr == f"deleted {NAME}: 4 MB\n"
    assert not path.exists()
    assert not blob.exists()
    assert kept.exists(), "the other quantization of the same repository stays"
    localrun("rm", "hf:o/tiny-GGUF:Q8_0", "--yes")
    assert not kept.parent.parent.parent.exists(), "the last one takes the repository's folder with it"
    assert "is not on this machine" in localrun("rm", "hf:o/tiny-GGUF", "--yes", code=3).stderr


def test_rm_deletes_no_file_of_the_users_own(localrun: Localrun, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "mine.gguf")
    assert "is a file of yours" in localrun("rm", str(path), "--yes", code=2).stderr
    assert path.exists()


def test_an_unfinished_download_is_listed_and_rm_deletes_it(localrun: Localrun, hub: Served) -> None:
    hub.faults.cut_after, hub.faults.cuts_left, hub.faults.status_after_cut = 2 << 20, 1, 500
    localrun("pull", NAME, code=3)
    assert "hf:o/tiny-GGUF is unfinished (2 MB are here)" in localrun("list").stderr
    assert localrun("rm", "hf:o/tiny-GGUF", "--yes").stderr == "deleted hf:o/tiny-GGUF: 2 MB\n"
    assert "unfinished" not in localrun("list").stderr


def test_an_unfinished_download_from_a_url_is_listed_and_rm_deletes_it(localrun: Localrun) -> None:
    with web_server() as web:
        web.files["/m.gguf"] = MODEL
        web.faults.cut_after, web.faults.cuts_left, web.faults.status_after_cut = 2 << 20, 1, 500
        url = f"{web.url}/m.gguf"
        localrun("pull", url, code=3)
        assert f"{url} is unfinished (2 MB are here)" in localrun("list").stderr
        localrun("rm", url, "--yes")
        assert "unfinished" not in localrun("list").stderr
