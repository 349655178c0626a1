"""llama.cpp's own tools, built from the very sources that the installed engine was built from.

So what is compared is what is around the kernels, not two releases of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

from platformdirs import user_cache_path

TOOLS = ("llama-bench", "llama-completion", "llama-server", "llama-quantize", "llama-perplexity", "llama-imatrix")


def llama_cpp_tools() -> Path:
    """The folder of the tools: `LLAMA_CPP_BIN`, or one in the user's cache, which is filled if it is empty.

    Ends the benchmark where they cannot be built.
    """
    if given := os.environ.get("LLAMA_CPP_BIN"):
        return Path(given)
    release = version("llama-cpp-python")
    folder = user_cache_path("localrun-peers") / release
    tools = folder / "build" / "bin"
    if not all((tools / name).is_file() for name in TOOLS):
        build(release, folder)
    return tools


def build(release: str, folder: Path) -> None:
    """Fetch the sources of a release of the engine, and build the tools."""
    for needed in ("cmake", "c++"):
        if shutil.which(needed) is None:
            sys.exit(f"{needed} is not here, and llama.cpp's tools must be built: install it, or set LLAMA_CPP_BIN")
    source = folder / "src"
    print(f"building llama.cpp's tools in {folder} (once)", flush=True)
    if not source.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        step([*fetch, "--dest", str(folder), f"llama-cpp-python=={release}"])
        with tarfile.open(next(folder.glob("llama_cpp_python-*.tar.gz"))) as archive:
            archive.extractall(folder / "part", filter="data")
        next((folder / "part").iterdir()).rename(source)
    options = [
        "-DCMAKE_BUILD_TYPE=Release",
        "-DLLAMA_CURL=OFF",
        "-DLLAMA_BUILD_TESTS=OFF",
        "-DLLAMA_BUILD_EXAMPLES=OFF",
    ]
    step(["cmake", "-S", str(source / "vendor" / "llama.cpp"), "-B", str(folder / "build"), *options])
    step(["cmake", "--build", str(folder / "build"), "-j", str(os.cpu_count() or 1), "--target", *TOOLS])


def step(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command[:6])} … ended with {done.returncode}:\n{done.stderr[-2000:]}")
