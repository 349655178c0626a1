"""Settings: flags, then `LOCALRUN_*` variables, then `config.toml`, then built-in defaults.

Knows the names of all settings and where each value came from; knows no command and no engine. Invariant: a value
that `Config` returns has the right type, and a name or value in the file or the environment that makes no sense is an
error that says where it stands.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from localrun import setting_values as read
from localrun.errors import InputError, UsageError
from localrun.params import EngineParams, GenerationParams, SamplingParams
from localrun.spread import Spread

OPTIONS: dict[str, read.Parser] = {
    "model": read.as_name,
    "system": read.as_text,
    "max_tokens": read.as_integer,
    "stop": read.as_texts,
    "ctx": read.as_auto_or_integer,
    "on_overflow": read.as_overflow,
    "timeout": read.as_number,
    "ignore_eos": read.as_boolean,
    "temperature": read.as_number,
    "top_k": read.as_integer,
    "top_p": read.as_number,
    "min_p": read.as_number,
    "typical_p": read.as_number,
    "top_n_sigma": read.as_number,
    "xtc": read.as_pair,
    "dry": read.as_dry,
    "repeat_penalty": read.as_number,
    "repeat_last_n": read.as_integer,
    "frequency_penalty": read.as_number,
    "presence_penalty": read.as_number,
    "mirostat": read.as_mirostat,
    "logit_bias": read.as_logit_bias,
    "seed": read.as_integer,
    "sampler_order": read.as_order,
    "think": read.as_boolean,
    "think_budget": read.as_integer,
    "parallel": read.as_integer,
    "threads": read.as_auto_or_integer,
    "gpu_layers": read.as_gpu_layers,
    "split_mode": read.as_text,
    "tensor_split": read.as_shares,
    "main_gpu": read.as_integer,
    "cpu_moe": read.as_boolean,
    "n_cpu_moe": read.as_integer,
    "rpc": read.as_endpoints,
    "kv_type": read.as_text,
    "flash_attention": read.as_boolean,
    "batch_size": read.as_integer,
    "ubatch_size": read.as_integer,
    "mmap": read.as_boolean,
    "cache": read.as_boolean,
    "draft": read.as_name,
    "engine": read.as_name,
    "strict": read.as_boolean,
    "offline": read.as_boolean,
    "quiet": read.as_boolean,
}
"""Every setting by its name in `config.toml`; the variable is `LOCALRUN_` and the name in capitals."""

_TABLES = ("models", "engines")
_OTHER_VARIABLES = {"LOCALRUN_HOME", "LOCALRUN_TEST_CACHE"}


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"LOCALRUN_{name.upper()}"


def flag_of(name: str) -> str:
    """The command line's flag of a setting."""
    return "--" + name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and where it came from: `flag`, a variable's name, the file (and table), or `default`."""

    value: Any
    origin: str


class Config:
    """All sources together. The first that has a value wins: flag, variable, the model's table, the file."""

    def __init__(
        self,
        flags: Mapping[str, object | None] | None = None,
        *,
        file: Path | None = None,
        environment: Mapping[str, str] | None = None,
        called: Callable[[str], str] = flag_of,
    ) -> None:
        """`flags` that are None were not given; `called` is how their user knows them. `file` need not exist.

        Raises `UsageError` for nonsense in either.
        """
        self._called = called
        self._flags = {name: value for name, value in (flags or {}).items() if value is not None and value != []}
        self._environment = os.environ if environment is None else environment
        self._file = file
        self._values: dict[str, Any] = {}
        self._models: dict[str, dict[str, Any]] = {}
        self._engines: dict[str, dict[str, Any]] = {}
        self._check_variables()
        if file is not None:
            self._read(file)

    def setting(self, name: str, model: str | None = None) -> Setting:
        """The value of `name` in force, for `model` where the file has a table for it; None by default."""
        parse = OPTIONS[name]
        if name in self._flags:
            return Setting(_parsed(parse, self._flags[name], self._called(name)), "flag")
        text = self._environment.get(variable(name))
        if text is not None and text != "":
            return Setting(_parsed(parse, text, variable(name)), variable(name))
        table = self._models.get(model or "")
        if table is not None and name in table:
            return Setting(_parsed(parse, table[name], f'{self._file}: [models."{model}"]: {name}'), f"{self._file}")
        if name in self._values:
            return Setting(_parsed(parse, self._values[name], f"{self._file}: {name}"), f"{self._file}")
        return Setting(None, "default")

    def get(self, name: str, model: str | None = None) -> Any:
        """Only the value of `setting`."""
        return self.setting(name, model).value

    def engine_table(self, name: str) -> dict[str, Any] | None:
        """The table `[engines.NAME]`, as it stands in the file."""
        return self._engines.get(name)

    # parameters ---------------------------------------------------------------------------------------------------

    def sampling(self, model: str | None = None) -> SamplingParams:
        """`SamplingParams` of the settings in force. Raises `UsageError` for a value out of range."""
        with self._naming_settings(model):
            return self._sampling(model)

    def _sampling(self, model: str | None) -> SamplingParams:
        values: dict[str, Any] = {}
        for field in fields(SamplingParams):
            if field.name in OPTIONS and field.name != "mirostat":
                values[field.name] = self.get(field.name, model)
        values["order"] = self.get("sampler_order", model)
        xtc = self.get("xtc", model)
        if xtc is not None:
            values["xtc_probability"] = xtc[0]
            values["xtc_threshold"] = None if math.isnan(xtc[1]) else xtc[1]
        dry = self.get("dry", model) or ()
        names = ("dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n")
        values.update(zip(names, dry, strict=False))
        mirostat = self.get("mirostat", model) or ()
        if mirostat:
            values["mirostat"] = mirostat[0]
            values.update(zip(("mirostat_tau", "mirostat_eta"), mirostat[1:], strict=False))
        return SamplingParams(**_given(values))

    def generation(self, model: str | None = None) -> GenerationParams:
        """`GenerationParams` of the settings in force, without a constraint."""
        values = {
            "sampling": self.sampling(model),
            "max_tokens": self.get("max_tokens", model),
            "stop": self.get("stop", model),
            "ignore_eos": self.get("ignore_eos", model),
            "timeout_s": self.get("timeout", model),
            "on_overflow": self.get("on_overflow", model),
            "think": self.get("think", model),
            "think_budget": self.get("think_budget", model),
        }
        if values["max_tokens"] == -1:
            values["max_tokens"] = None  # llama.cpp's way to say "until the end"
        with self._naming_settings(model):
            return GenerationParams(**_given(values))

    def engine(self, model: str | None = None) -> EngineParams:
        """`EngineParams` of the settings in force."""
        with self._naming_settings(model):
            return self._engine_params(model)

    def _engine_params(self, model: str | None) -> EngineParams:
        return EngineParams(
            **_given(
                {
                    "n_ctx": self.get("ctx", model),
                    "n_parallel": self.get("parallel", model),
                    "n_batch": self.get("batch_size", model),
                    "n_ubatch": self.get("ubatch_size", model),
                    "threads": self.get("threads", model),
                    "gpu_layers": self.get("gpu_layers", model),
                    "spread": self._spread(model),
                    "kv_type": self.get("kv_type", model),
                    "flash_attention": self.get("flash_attention", model),
                    "use_mmap": self.get("mmap", model),
                    "draft": _draft(self.get("draft", model)),
                    "cache": self.get("cache", model),
                }
            )
        )

    @contextmanager
    def _naming_settings(self, model: str | None) -> Iterator[None]:
        """Errors that begin with the name of a setting say where its value stands, if that is not the command line."""
        try:
            yield
        except UsageError as error:
            said, _, _ = error.message.partition(" is ")
            name = said.replace("-", "_").replace(" ", "_")
            origin = self.setting(name, model).origin if name in OPTIONS else "default"
            if origin not in ("flag", "default"):
                error.message = f"{origin}: {error.message}"
            error.args = (error.message,)
            raise

    def _spread(self, model: str | None) -> Spread:
        return Spread(**_given({field.name: self.get(field.name, model) for field in fields(Spread)}))

    def _check_variables(self) -> None:
        """A variable that is nearly one of ours is a misspelling; others of the prefix belong to the user."""
        known = [variable(name) for name in OPTIONS]
        for name in self._environment:
            if name.startswith("LOCALRUN_") and name not in known and name not in _OTHER_VARIABLES:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
                if near:
                    raise UsageError(f"there is no setting {name}", hint=f"did you mean {near[0]}?")

    # the file -----------------------------------------------------------------------------------------------------

    def _read(self, file: Path) -> None:
        import tomllib

        try:
            data = tomllib.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{file} is not valid TOML: {error}") from error
        for table in _TABLES:
            value = data.pop(table, {})
            if not isinstance(value, dict) or not all(isinstance(entry, dict) for entry in value.values()):
                raise InputError(f"{file}: [{table}] holds tables, as in [{table}.NAME]")
            if table == "models":
                self._models = value
            else:
                self._engines = value
        for name in data:
            _known(name, f"{file}")
        for model, values in self._models.items():
            for name in values:
                _known(name, f'{file}: [models."{model}"]')
        self._values = data


def _draft(value: str | None) -> str | None:
    return None if value == "off" else value


def _parsed(parse: read.Parser, value: object, where: str) -> Any:
    try:
        return parse(value)
    except (ValueError, TypeError, OverflowError) as error:
        reason = str(error)
        if "could not convert" in reason or "invalid literal" in reason:
            reason = "it must be a whole number" if "int()" in reason else "it must be a number"
        raise UsageError(f"{where} is {value!r}: {reason}") from error


def _known(name: str, where: str) -> None:
    if name not in OPTIONS:
        near = difflib.get_close_matches(name.replace("-", "_"), OPTIONS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the settings are {', '.join(OPTIONS)}"
        raise InputError(f"{where}: there is no setting {name!r}", hint=hint)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
