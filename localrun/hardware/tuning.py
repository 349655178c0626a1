"""What was measured about a model on this machine: its best settings, and its speed.

Reads and writes one small file a model, named by its fingerprint; imports nothing heavy, so that loading can ask.
Invariant: what another machine or another engine measured is never returned.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from localrun.gguf import fingerprint
from localrun.hardware.machine import this_machine
from localrun.hardware.notes import read_note, write_note
from localrun.paths import can_list, default_paths

T = TypeVar("T", "TunedSettings", "MeasuredSpeed")
_KINDS: dict[str, tuple[type, ...]] = {"bool": (bool,), "int": (int,), "float": (int, float)}


@dataclass(frozen=True, slots=True)
class TunedSettings:
    """The fastest settings found by `localrun bench --tune`."""

    flash_attention: bool
    threads: int
    """For decoding."""
    threads_prefill: int
    n_ubatch: int


@dataclass(frozen=True, slots=True)
class MeasuredSpeed:
    """Tokens a second, as measured last."""

    decode_tps: float
    depth: int
    """Tokens in the context while decoding."""
    prefill_tps: float
    prompt: int


def load_tuning(model: str) -> TunedSettings | None:
    """The settings that `--tune` found here for the model with this fingerprint; None if it has not been tuned."""
    values = _of_this_machine(model).get("tuned")
    return _typed(TunedSettings, values)


def save_tuning(model: str, settings: TunedSettings) -> bool:
    """Remember settings; False where the cache cannot be written."""
    return _update(model, "tuned", asdict(settings))


def load_speed(model: str) -> MeasuredSpeed | None:
    """The speed that was measured for this model on this machine."""
    return _typed(MeasuredSpeed, _of_this_machine(model).get("speed"))


def save_speed(model: str, speed: MeasuredSpeed) -> bool:
    """Remember a measured speed; False where the cache cannot be written."""
    return _update(model, "speed", asdict(speed))


def _of_this_machine(model: str) -> dict[str, Any]:
    note = read_note(_name(model))
    return note if note.get("machine") == this_machine().identity else {}


def _update(model: str, key: str, value: dict[str, Any]) -> bool:
    note = _of_this_machine(model) | {"machine": this_machine().identity, key: value}
    return write_note(_name(model), note)


def _name(model: str) -> str:
    return f"model-{model}"


def _typed(kind: type[T], values: object) -> T | None:
    """An instance of the dataclass `kind`; None where a value is missing or of the wrong kind."""
    if not isinstance(values, dict):
        return None
    for field in fields(kind):
        value, name = values.get(field.name), str(field.type)
        if not isinstance(value, _KINDS[name]) or isinstance(value, bool) != (name == "bool"):
            return None
    return kind(**{field.name: values[field.name] for field in fields(kind)})


def tuned_for(path: Path) -> TunedSettings | None:
    """The settings that were found for the model at `path`. Costs nothing where no model was ever measured.

    Raises `ModelFileError` if the file is no complete model.
    """
    folder = default_paths().tuning
    if not can_list(folder) or next(folder.glob(f"{_name('*')}.json"), None) is None:
        return None
    return load_tuning(fingerprint(path))
