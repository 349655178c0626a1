"""Which release of the engine is installed.

Knows installed packages; imports none of them. `importlib.metadata` would take 20 ms to import, which every answer
would wait for: the name of the metadata's folder says the same.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path

_PREFIX, _SUFFIX = "llama_cpp_python-", ".dist-info"


@lru_cache(maxsize=1)
def engine_release() -> str:
    """The engine's package and version: part of the identity of all that is measured or cached."""
    spec = importlib.util.find_spec("llama_cpp")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        found = list(Path(folder).parent.glob(f"{_PREFIX}*{_SUFFIX}"))
        if len(found) == 1:
            return f"llama-cpp-python {found[0].name.removeprefix(_PREFIX).removesuffix(_SUFFIX)}"
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"llama-cpp-python {version('llama-cpp-python')}"
    except PackageNotFoundError:  # an installation without metadata; `doctor` says more
        return "llama-cpp-python (unknown version)"
