"""A small program: reads words, prints those that the engine's loader knows as architectures.

It runs in a process of its own because the engine has one log callback for the whole process.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import llama_cpp.llama_cpp as engine

from tests.gguf.writer import header, key_value


def main() -> None:
    lines: list[bytes] = []

    @engine.llama_log_callback  # type: ignore[untyped-decorator]
    def collect(level: int, line: bytes, user_data: object) -> None:
        lines.append(line)

    engine.llama_log_set(collect, None)
    engine.llama_backend_init()
    params = engine.llama_model_default_params()
    params.vocab_only = True
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        for word in sys.stdin.read().split():
            path.write_bytes(header([key_value("general.architecture", word)]))
            lines.clear()
            assert not engine.llama_model_load_from_file(str(path).encode(), params)
            log = b"".join(lines)
            assert b"model" in log, log
            if b"unknown model architecture" not in log:
                sys.stdout.write(word + "\n")


if __name__ == "__main__":
    main()
