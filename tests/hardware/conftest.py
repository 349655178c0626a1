"""Headers of known models, written once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from localrun.gguf import GGUFHeader, read_header
from tests.hardware.shapes import BY_NAME, write_header


@pytest.fixture(scope="session")
def header_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The sparse file of a model by name."""
    folder = tmp_path_factory.mktemp("headers")

    def find(name: str) -> Path:
        path = folder / f"{name}.gguf"
        return path if path.exists() else write_header(folder, BY_NAME[name])

    return find


@pytest.fixture(scope="session")
def header_of(header_file: Callable[[str], Path]) -> Callable[[str], GGUFHeader]:
    """The header of a model by name."""
    return lambda name: read_header(header_file(name), vocabulary=False)
