"""Run as a process: llama.cpp's RPC server on the CPU of this machine, as `rpc-server` would be elsewhere.

python -m tests.llama.rpc_server HOST:PORT
"""

from __future__ import annotations

import ctypes
import sys

from localrun.llama.library import bindings


def main() -> None:
    library, pointer = bindings()._lib, ctypes.c_void_p
    by_type = library.ggml_backend_dev_by_type
    by_type.restype, by_type.argtypes = pointer, [ctypes.c_int]
    by_name, address = library.ggml_backend_reg_by_name, library.ggml_backend_reg_get_proc_address
    by_name.restype, by_name.argtypes = pointer, [ctypes.c_char_p]
    address.restype, address.argtypes = pointer, [pointer, ctypes.c_char_p]
    found = address(pointer(by_name(b"RPC")), b"ggml_backend_rpc_start_server")
    kinds = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.POINTER(pointer)]
    start = ctypes.CFUNCTYPE(None, *kinds)(found)
    devices = (pointer * 1)(by_type(0))
    start(sys.argv[1].encode(), None, 1, 1, devices)  # serves until it is killed


if __name__ == "__main__":
    main()
