"""Saving and restoring the KV of one sequence as bytes.

Knows llama.cpp's sequence state format only as opaque bytes; knows no files. Invariant: a state that does not fit is
refused by the engine and leaves the sequence empty.
"""

from __future__ import annotations

import ctypes

from localrun.errors import EngineError
from localrun.llama.context import LlamaContext
from localrun.llama.library import bindings


def save_sequence(context: LlamaContext, seq: int) -> bytearray:
    """The KV cells of a sequence. Source: `llama_state_seq_get_data`."""
    lib = bindings()
    size = lib.llama_state_seq_get_size(context.handle, seq)
    data = bytearray(size)
    view = (ctypes.c_uint8 * size).from_buffer(data)
    written = lib.llama_state_seq_get_data(context.handle, view, size, seq)
    del view
    if written == 0 or written > size:
        raise EngineError(f"the engine could not save {size:,} bytes of KV state")
    del data[written:]
    return data


def restore_sequence(context: LlamaContext, seq: int, data: bytes | bytearray | memoryview) -> bool:
    """Replace the cells of `seq` by saved ones; False where the engine refuses them.

    Source: `llama_state_seq_set_data`.
    """
    size = len(data)
    buffer = (ctypes.c_uint8 * size).from_buffer_copy(data)
    read = bindings().llama_state_seq_set_data(context.handle, buffer, size, seq)
    return bool(read == size)
