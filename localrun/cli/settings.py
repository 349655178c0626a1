"""Flags of a command → the configuration in force."""

from __future__ import annotations

from collections.abc import Mapping

from localrun.config import OPTIONS, Config
from localrun.paths import default_paths


def load_config(flags: Mapping[str, object | None]) -> Config:
    """The configuration with the flags of a command on top; what is no setting is left out."""
    given = {name: value for name, value in flags.items() if name in OPTIONS}
    return Config(given, file=default_paths().config_file)
