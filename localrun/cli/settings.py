"""Flags of a command → the configuration in force."""

from __future__ import annotations

from collections.abc import Mapping

from localrun.config import OPTIONS, Config
from localrun.errors import UsageError
from localrun.paths import default_paths


def one_model(argument: str | None, option: str | None) -> str | None:
    """The model of a command that takes it as an argument or as `-m`. Raises `UsageError` for two of them."""
    if argument is not None and option is not None and argument != option:
        raise UsageError(f"two models were given: {argument} and {option}")
    return option if argument is None else argument


def load_config(flags: Mapping[str, object | None]) -> Config:
    """The configuration with the flags of a command on top; what is no setting is left out."""
    given = {name: value for name, value in flags.items() if name in OPTIONS}
    return Config(given, file=default_paths().config_file)
