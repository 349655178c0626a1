"""When the engine ends the process, it does so with one line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from localrun.llama.fatal import reason


def test_an_abort_of_the_engine_is_one_line_and_exit_code_1_after_the_last_words() -> None:
    script = """
import ctypes, os
from localrun.llama.fatal import before_the_end
from localrun.llama.library import bindings

def fail(): raise ValueError
library = bindings()._lib
undo = before_the_end(lambda: os.write(2, b"undone "))
before_the_end(fail)
before_the_end(lambda: os.write(2, b"terminal put right; "))
undo()
print("text so far", end="", flush=True)
library.ggml_abort(b"/src/ggml-cuda.cu", ctypes.c_int(7), b"%s", b"CUDA error: out of memory")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "text so far")
    last = "error: the engine failed and cannot go on: CUDA error: out of memory\n"
    assert done.stderr == f"terminal put right; {last}"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"/a/ggml-rpc.cpp:547: Failed to connect to h:1\n", "Failed to connect to h:1"),
        (b"ggml.c:3: GGML_ASSERT(a: b) failed", "GGML_ASSERT(a: b) failed"),
        (b"no place", "no place"),
        (b"two\nlines \xff", "two lines \ufffd"),
    ],
)
def test_the_reason_is_without_its_place_in_the_source(message: bytes, words: str) -> None:
    assert reason(message) == words
