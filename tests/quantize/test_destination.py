"""Before anything is written it is certain that nothing of somebody else is written over."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quantize import convert, dry_run, pipeline
from quantize.blocks import PlainSearch
from quantize.conversion import Conversion
from quantize.destination import _check_base, check_output_name, check_report_names
from quantize.errors import DestinationError, QuantizeError
from quantize.journal import is_journal
from quantize.plan import make_plan
from quantize.recipe import Recipe
from quantize.settings import Settings
from quantize.types import parse_mix
from quantize.writer import replacing
from tests.quantize.synthetic import llama


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "tiny-F32.gguf"
    plan = make_plan(llama(n_layer=1), Recipe(parse_mix("f32")), path, matrix_names=None)
    pipeline.run(plan, PlainSearch(), fingerprint="x", threads=1)
    pipeline.finish(plan)
    return path


def content(folder: Path) -> dict[str, object]:
    """What lies in a folder: bytes of files, the kind of anything else."""
    return {
        path.name: path.read_bytes() if stat.S_ISREG(path.lstat().st_mode) else stat.S_IFMT(path.lstat().st_mode)
        for path in folder.iterdir()
    }


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


KINDS: dict[str, Callable[[Path], object]] = {"pipe": os.mkfifo, "folder": Path.mkdir, "socket": _socket}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["o.gguf", "o.gguf.part", "o.gguf.part.journal"])
def test_what_is_no_file_is_never_replaced(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    KINDS[kind](Path(name))
    before = content(tmp_path)
    with pytest.raises(DestinationError, match=r"no regular file|is a folder|in the way"):
        convert(source, "o.gguf", type="q8_0", report=False)
    assert content(tmp_path) == before


def test_a_device_is_refused(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "null"
    out.write_bytes(b"stands for a device")
    real = os.stat

    def as_device(path: Any, **more: Any) -> os.stat_result:
        found = real(path, **more)
        return os.stat_result((stat.S_IFCHR | 0o666, *found[1:])) if str(path) == str(out) else found

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", as_device)
        with pytest.raises(DestinationError, match="null is no regular file"):
            convert(source, out, type="q8_0", report=False)
    assert content(tmp_path) == {"null": b"stands for a device"}


@pytest.mark.parametrize("name", ["o.gguf.part", "o.gguf.part.journal"])
def test_a_stranger_s_file_of_a_partial_name_is_left_alone(source: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"a browser's download")
    with pytest.raises(DestinationError, match="is in the way") as caught:
        convert(source, tmp_path / "o.gguf", type="q8_0", report=False)
    assert "move it away" in (caught.value.hint or "")
    assert content(tmp_path) == {name: b"a browser's download"}


def test_a_link_of_a_partial_name_is_not_followed(source: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    (tmp_path / "o.gguf.part").symlink_to(precious)
    (tmp_path / "o.gguf.part.journal").write_bytes(b"")
    with pytest.raises(DestinationError, match="is in the way"):
        convert(source, tmp_path / "o.gguf", type="q8_0", report=False)
    assert precious.read_bytes() == b"precious"


def test_what_an_interrupted_run_left_is_taken_up(source: Path, tmp_path: Path) -> None:
    def stop(_progress: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "o.gguf"
    with pytest.raises(KeyboardInterrupt):
        convert(source, out, type="q8_0", report=False, imatrix="off", progress=stop)
    assert is_journal(tmp_path / "o.gguf.part.journal")
    convert(source, out, type="q8_0", report=False, imatrix="off")
    assert list(content(tmp_path)) == ["o.gguf"]


def test_a_stranger_s_file_of_the_temporary_model_s_name_is_left_alone(tmp_path: Path) -> None:
    base = make_plan(llama(n_layer=1), Recipe(parse_mix("f32")), tmp_path / "b.gguf", matrix_names=None)
    base.files[0].path.write_bytes(b"GGUF of somebody")
    with pytest.raises(DestinationError, match="in the way"):
        _check_base(base)
    base.files[0].path.write_bytes(base.files[0].header + b"weights")
    _check_base(base)


@pytest.mark.parametrize(
    ("flag", "target"),
    [
        *(
            (flag, target)
            for flag in ("report_files", "save_imatrix")
            for target in ("source", "output", "calibration")
        ),
        ("save_imatrix", "partial"),
    ],
)
def test_what_is_written_beside_is_nothing_else_that_is_used(
    source: Path, tmp_path: Path, flag: str, target: str
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 200)
    out = tmp_path / "o.html"
    paths = {"source": source, "output": out, "calibration": text, "partial": tmp_path / "o.html.part"}
    beside = tmp_path / "r.html"
    if target in {"output", "partial"} and flag == "save_imatrix":
        beside = paths[target]
    else:
        out.write_bytes(b"older")
        beside.symlink_to(paths[target])
    before = content(tmp_path), source.read_bytes()
    settings = Settings(
        type="q4_0",
        calibration=text,
        report_files=(beside,) if flag == "report_files" else (),
        save_imatrix=beside if flag == "save_imatrix" else None,
    )
    with pytest.raises(DestinationError, match=r"is the source|read as|written too"):
        Conversion(source, out, settings).run()
    assert (content(tmp_path), source.read_bytes()) == before


@pytest.mark.parametrize("name", ["", ".", "/"])
def test_a_name_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(DestinationError, match="no name of a file"):
        check_output_name(Path(name))


def test_reports_have_an_ending_that_says_their_kind() -> None:
    check_report_names([Path("r.json"), Path("r.HTML"), Path("r.htm")])
    for name in ("r.txt", "r", "", ".json", "json"):
        with pytest.raises(QuantizeError, match=r"neither \.json nor \.html"):
            check_report_names([Path(name)])


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(b"old")
    (tmp_path / "r.json.part").write_bytes(b"somebody's")

    def half() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        half()
    assert content(tmp_path) == {"r.json": b"old", "r.json.part": b"somebody's"}
    with replacing(path) as file:
        file.write(b"new")
    assert content(tmp_path) == {"r.json": b"new", "r.json.part": b"somebody's"}


LETTER = b"dear diary"


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("o.gguf", {}),
        ("o-00001-of-00001.gguf", {"split": "1GB"}),
        ("notes.json", {"report": True, "report_files": (Path("notes.json"),)}),
        ("index.html", {"report": True, "report_files": (Path("index.html"),)}),
    ],
)
@pytest.mark.parametrize("found", [LETTER, b"GGUF" + bytes(40), b'{"recipe": "cake"}'])
def test_a_file_that_no_earlier_run_made_is_refused_without_force(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, settings: dict[str, Any], found: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(found)
    with pytest.raises(DestinationError, match="exists, and no earlier run made it") as raised:
        convert(source, "o.gguf", type="q8_0", imatrix="off", **{"report": False, **settings})
    assert "--force" in (raised.value.hint or "")
    assert content(tmp_path) == {name: found}


def test_a_strange_matrix_file_is_refused_too(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.gguf").write_bytes(source.read_bytes())  # a model is no matrix
    with pytest.raises(DestinationError, match=r"m\.gguf exists"):
        convert(source, "o.gguf", type="q4_0", report=False, save_imatrix=Path("m.gguf"))
    assert content(tmp_path) == {"m.gguf": source.read_bytes()}


def test_force_replaces_a_plain_file(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.gguf"
    out.write_bytes(LETTER)
    convert(source, out, type="q8_0", report=False, force=True)
    assert out.read_bytes()[:4] == b"GGUF"


@pytest.mark.parametrize("split", [None, "20KB"])
def test_the_result_of_an_earlier_run_and_an_empty_file_are_replaced(
    source: Path, tmp_path: Path, split: str | None
) -> None:
    if split is None:
        (tmp_path / "o.gguf").write_bytes(b"")
    first = convert(source, tmp_path / "o.gguf", type="q8_0", report=False, split=split)
    again = convert(source, tmp_path / "o.gguf", type="q8_0", report=False, split=split)
    assert first.files == again.files
    assert len(again.files) > 1 or split is None
    assert any("will be replaced" in warning for warning in again.warnings)


def test_a_quantized_source_that_would_grow_is_told_of_before(source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "small.gguf", type="q4_0", report=False)
    warnings = dry_run(tmp_path / "small.gguf", type="q8_0").warnings
    assert any("larger than the quantized source, and no better" in warning for warning in warnings)
    assert not any("larger" in warning for warning in dry_run(source, type="q8_0").warnings)
