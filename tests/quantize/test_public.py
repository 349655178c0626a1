"""The library's front door."""

from __future__ import annotations

import subprocess
import sys

import pytest

import quantize


def test_every_public_name_is_there() -> None:
    for name in quantize.__all__:
        assert getattr(quantize, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = quantize.nothing


@pytest.mark.parametrize("heavy", ["numpy", "gguf", "llama_cpp", "localrun"])
def test_importing_the_library_imports_nothing_heavy(heavy: str) -> None:
    program = f"import sys, quantize; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_library_stands_without_localrun() -> None:
    program = (
        "import sys; sys.modules['localrun'] = None; import quantize;"
        "[getattr(quantize, name) for name in quantize.__all__]"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
