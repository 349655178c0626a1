"""The tables agree with the engine that is installed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import gguf

from localrun.gguf.architectures import ARCHITECTURES
from localrun.gguf.types import FILE_TYPES, REMOVED_TENSOR_TYPES, TENSOR_TYPES
from tests.gguf.engine_oracle import Ggml, library_file
from tests.gguf.writer import header, tensor_info


def test_every_tensor_type_is_the_engines() -> None:
    ggml = Ggml()
    for number in range(max(TENSOR_TYPES) + 1):
        name, block_size, block_bytes = ggml.tensor_type(number)
        if number in TENSOR_TYPES:
            known = TENSOR_TYPES[number]
            assert (known.name.lower(), known.block_size, known.block_bytes) == (name.lower(), block_size, block_bytes)
        else:
            assert number in REMOVED_TENSOR_TYPES
            assert block_size == 0


def test_no_tensor_type_of_the_engine_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(header([], [tensor_info("t", (256,), max(TENSOR_TYPES) + 1, 0)]) + bytes(4096))
    assert Ggml().data_offset(path) is None


def test_file_types_have_the_names_of_gguf_py() -> None:
    for file_type in gguf.LlamaFileType:
        if file_type.name != "GUESSED":
            assert FILE_TYPES[file_type.value] == re.sub("^(ALL|MOSTLY)_", "", file_type.name)


def known_to_the_engine(words: set[str]) -> set[str]:
    """Those of `words` that the engine's loader accepts as an architecture."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.gguf.architecture_oracle"],
        input=" ".join(words),
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    return set(run.stdout.split())


def test_the_architectures_are_exactly_those_the_engine_knows() -> None:
    content = library_file("llama").read_bytes()
    words = {w.decode() for w in re.findall(rb"(?<=\0)[a-z][a-z0-9_-]{1,24}(?=\0)", content)}
    assert len(words) > 1000
    # `clip` stands in the engine's table, but only for its quantizer.
    assert known_to_the_engine(words | ARCHITECTURES | {"nope"}) - {"clip"} == ARCHITECTURES
