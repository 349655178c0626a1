"""What was measured about a model on this machine: its best settings, and its speed.

Reads and writes one small file a model, named by its fingerprint; imports nothing heavy, so that loading can ask.
Invariant: what another machine or another engine measured is never returned.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from localrun.hardware.machine import this_machine
from localrun.hardware.notes import read_note, write_note

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


def load_tuning(fingerprint: str) -> TunedSettings | None:
    """The settings that `--tune` found for this model on this machine; None if it has not been tuned here."""
    values = _of_this_machine(fingerprint).get("tuned")
    return _typed(TunedSettings, values)


def save_tuning(fingerprint: str, settings: TunedSettings) -> bool:
    """Remember settings; False where the cache cannot be written."""
    return _update(fingerprint, "tuned", asdict(settings))


def load_speed(fingerprint: str) -> MeasuredSpeed | None:
    """The speed that was measured for this model on this machine."""
    return _typed(MeasuredSpeed, _of_this_machine(fingerprint).get("speed"))


def save_speed(fingerprint: str, speed: MeasuredSpeed) -> bool:
    """Remember a measured speed; False where the cache cannot be written."""
    return _update(fingerprint, "speed", asdict(speed))


def _of_this_machine(fingerprint: str) -> dict[str, Any]:
    note = read_note(_name(fingerprint))
    return note if note.get("machine") == this_machine().identity else {}


def _update(fingerprint: str, key: str, value: dict[str, Any]) -> bool:
    note = _of_this_machine(fingerprint) | {"machine": this_machine().identity, key: value}
    return write_note(_name(fingerprint), note)


def _name(fingerprint: str) -> str:
    return f"model-{fingerprint}"


def _typed(kind: type[T], values: object) -> T | None:
    """An instance of the dataclass `kind`; None where a value is missing or of the wrong kind."""
    if not isinstance(values, dict):
        return None
    for field in fields(kind):
        value, name = values.get(field.name), str(field.type)
        if not isinstance(value, _KINDS[name]) or isinstance(value, bool) != (name == "bool"):
            return None
    return kind(**{field.name: values[field.name] for field in fields(kind)})
