"""The structure that the documentation promises: layers, lean start-up, the public interface, shipped data."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import localrun

ROOT = Path(__file__).parents[2]
HEAVY = (
    "numpy",
    "llama_cpp",
    "textual",
    "huggingface_hub",
    "jinja2",
    "llguidance",
    "jsonschema",
    "rich",
    "httpx",
    "psutil",
)


def imported_by(code: str) -> set[str]:
    """The heavy packages that a fresh interpreter has imported after running `code`."""
    probe = f"import sys\n{code}\nprint('imported:', *[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("imported:")[2].split())


def run_main(*arguments: str) -> str:
    return f"from localrun.cli.main import run\nrun({list(arguments)!r})"


def test_help_imports_nothing_heavy() -> None:
    assert imported_by(run_main("--help")) == set()


@pytest.mark.parametrize("command", ["generate", "pull", "list", "show", "tokenize"])
def test_help_of_a_command_imports_nothing_heavy(command: str) -> None:
    assert imported_by(run_main(command, "--help")) == set()


def test_importing_the_package_is_cheap() -> None:
    assert imported_by("import localrun") == set()
    assert imported_by("import localrun\nlocalrun.SamplingParams") == set()


@pytest.mark.model
def test_a_raw_answer_imports_neither_numpy_nor_the_template_engine_nor_the_hub(smollm2: Path) -> None:
    code = run_main("generate", "--raw", "-n", "2", "--threads", "1", "-m", str(smollm2), "Hello")
    assert imported_by(f"import os\nsys.stdin = open(os.devnull)\n{code}") <= {"llama_cpp"}


def test_import_contracts_hold() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-logo",
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout


def test_every_public_name_is_there() -> None:
    for name in localrun.__all__:
        assert getattr(localrun, name) is not None
    with pytest.raises(AttributeError):
        _ = localrun.nothing_of_this_name  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("tool", [["ruff", "format", "--check", "."], ["ruff", "check", "."], ["mypy"]], ids=" ".join)
def test_the_code_passes_its_tools(tool: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *tool], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_wheel_holds_its_data(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "localrun/_data/models.toml" in names
    assert any(name.startswith("localrun/_data/grammars/") for name in names)
    assert "localrun/py.typed" in names
    assert not [name for name in names if name.startswith("tests/")]


def test_the_readme_has_the_command_that_ci_runs() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "<!-- test-command" in readme
    assert "README.md" in (ROOT / ".ci" / "run").read_text()


def test_the_command_reference_is_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate_cli.py"), "--check"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


def test_every_setting_is_documented() -> None:
    from localrun.config import OPTIONS

    text = (ROOT / "docs" / "configuration.md").read_text()
    assert [name for name in OPTIONS if f"`{name}`" not in text] == []


@pytest.mark.model
def test_the_examples_of_the_python_guide_run(smollm2: Path) -> None:
    text = (ROOT / "docs" / "python.md").read_text()
    blocks = [block.partition("```")[0] for block in text.split("```python\n")[1:]]
    assert len(blocks) >= 3
    for block in blocks:
        code = block.replace('"smollm2:135m"', repr(str(smollm2))).replace(
            "localrun.load(", "localrun.load(threads=1, model="
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr
