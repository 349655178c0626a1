"""How sentence-transformers makes one vector of a text: the pooling its `modules.json` names.

Invariant: a pooling the engine does not have is refused; layers after it are named, so that a caller can warn.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gguf.constants import PoolingType

from quantize.checkpoint.config import Json, read_json, read_json_list
from quantize.errors import UnsupportedError

_FLAGS = {
    "pooling_mode_mean_tokens": PoolingType.MEAN,
    "pooling_mode_cls_token": PoolingType.CLS,
    "pooling_mode_lasttoken": PoolingType.LAST,
}
_NAMES = {"mean": PoolingType.MEAN, "cls": PoolingType.CLS, "lasttoken": PoolingType.LAST}


@dataclass(frozen=True, slots=True)
class Pooling:
    type: PoolingType
    left_out: tuple[str, ...]
    """Modules that change the vector afterwards and that the engine does not have."""


def pooling_of(folder: Path) -> Pooling | None:
    """The pooling of a folder, None when it does not say. Raises UnsupportedError for one the engine does not have."""
    path = folder / "modules.json"
    if not path.is_file():
        return None
    modules = read_json_list(path)
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
    if "Pooling" not in kinds:
        return None
    where = str(modules[kinds.index("Pooling")].get("path", ""))
    left_out = tuple(kind for kind in kinds if kind == "Dense")
    return Pooling(_type(read_json(folder / Path(where).name / "config.json"), where), left_out)


def _type(settings: Json, where: str) -> PoolingType:
    for key, pooling in _FLAGS.items():
        if settings.get(key):
            return pooling
    name = settings.get("pooling_mode")
    if name in _NAMES:
        return _NAMES[name]
    raise UnsupportedError(f"{where}/config.json asks for a pooling that the engine does not have")
