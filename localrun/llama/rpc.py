"""Makes the devices of llama.cpp RPC servers known to the engine, which then uses them like GPUs of this machine.

Knows ggml's RPC backend (`ggml-rpc.h`), where the engine was built with it. Invariant: the library ends the process
when a server cannot be reached or speaks another protocol, so each server is tried in a process of its own first. One
that goes away later still ends this process: that is the backend's nature, and documented.

    python -m localrun.llama.rpc HOST:PORT      the trial: exit code 0 if the server is there and fits
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Sequence

from localrun.errors import EngineError, UsageError
from localrun.llama.library import bindings

_LIMIT_S = 15.0
_added: set[str] = set()


def supports_rpc() -> bool:
    """Whether the engine was built with the RPC backend."""
    return bool(bindings().llama_supports_rpc())


def add_rpc_servers(endpoints: Sequence[str]) -> None:
    """Register `host:port` servers, each once in a process.

    Raises `UsageError` where the engine has no RPC, `EngineError` for a server that is not there or does not fit.
    """
    new = [endpoint for endpoint in dict.fromkeys(endpoints) if endpoint not in _added]
    if not new:
        return
    if not supports_rpc():
        raise UsageError(
            "the engine was built without RPC servers",
            hint='build it with them: CMAKE_ARGS="-DGGML_RPC=on" '
            "pip install --force-reinstall --no-cache-dir --no-deps llama-cpp-python",
        )
    for endpoint in new:
        _try(endpoint)
    for endpoint in new:
        _register(endpoint)
        _added.add(endpoint)


def _try(endpoint: str) -> None:
    command = [sys.executable, "-m", "localrun.llama.rpc", endpoint]
    hint = "is llama.cpp's rpc-server running there, of the same version as this engine?"
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise EngineError(f"the RPC server {endpoint} did not answer within {_LIMIT_S:.0f} s", hint=hint) from None
    if done.returncode:
        raise EngineError(f"the RPC server {endpoint} cannot be used: {_reason(done.stderr)}", hint=hint)


def _reason(stderr: bytes) -> str:
    """The library's last words (`localrun.llama.fatal`)."""
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].rpartition("cannot go on: ")[2] if lines else "it ended the trial"


def _register(endpoint: str) -> None:
    library, pointer = bindings()._lib, ctypes.c_void_p
    by_name = library.ggml_backend_reg_by_name
    by_name.restype, by_name.argtypes = pointer, [ctypes.c_char_p]
    address = library.ggml_backend_reg_get_proc_address
    address.restype, address.argtypes = pointer, [pointer, ctypes.c_char_p]
    register = library.ggml_backend_register
    register.restype, register.argtypes = None, [pointer]
    found = address(pointer(by_name(b"RPC")), b"ggml_backend_rpc_add_server")
    server = ctypes.CFUNCTYPE(pointer, ctypes.c_char_p)(found)(endpoint.encode()) if found else None
    if not server:
        raise EngineError(f"the RPC server {endpoint} offers no device")
    register(pointer(server))


if __name__ == "__main__":
    _register(sys.argv[1])
