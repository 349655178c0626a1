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

from localrun.errors import InputError, UsageError
from localrun.params import EngineParams, GenerationParams, OverflowPolicy, SamplingParams
from localrun.spread import Spread

ALL_LAYERS = 10_000
"""What `--gpu-layers all` means: more than any model has."""

Parser = Callable[[object], Any]


def _integer(value: object) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError("it must be a whole number")
    if not isinstance(value, int | float | str):
        raise ValueError("it must be a whole number")
    return int(value)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("it must be a number")
    try:
        return float(value)
    except OverflowError as error:
        raise ValueError("it is beyond the numbers that can be computed with") from error


def _whole(value: object) -> int:
    """A whole number, also one written as `2.0`; what is not finite is none."""
    number = _number(value)
    if not number.is_integer():
        raise ValueError("it must be a whole number")
    return int(number)


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if str(value).lower() not in words:
        raise ValueError("it must be true or false")
    return words[str(value).lower()]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("it must be a text")
    return value


def _name(value: object) -> str:
    if not _text(value).strip():
        raise ValueError("it must be a name")
    return _text(value)


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise ValueError("it must be a text or a list of texts")


def _auto_or_integer(value: object) -> int | None:
    return None if value == "auto" else _integer(value)


def _gpu_layers(value: object) -> int | None:
    return ALL_LAYERS if value == "all" else _auto_or_integer(value)


def _shares(value: object) -> tuple[float, ...]:
    """`3,1`, or a list of numbers: proportions."""
    parts = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else [value]
    return tuple(_number(part) for part in parts)


def _endpoints(value: object) -> tuple[str, ...]:
    """`host:port,host:port`, or a list."""
    return tuple(part.strip() for item in _texts(value) for part in item.split(",") if part.strip())


def _overflow(value: object) -> OverflowPolicy:
    try:
        return OverflowPolicy(str(value))
    except ValueError:
        raise ValueError(f"it must be one of {', '.join(OverflowPolicy)}") from None


def _pair(value: object) -> tuple[float, float]:
    """`0.5,0.1`, or a list of two numbers; a single number leaves the second at its default (NaN here)."""
    parts = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else [value]
    if not 1 <= len(parts) <= 2:
        raise ValueError("it must be one number, or two with a comma between")
    numbers = [_number(part) for part in parts]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (numbers[0], math.nan)


def _dry(value: object) -> tuple[float, ...]:
    """`multiplier[,base[,allowed_length[,last_n]]]`."""
    parts = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else [value]
    if not 1 <= len(parts) <= 4:
        raise ValueError("it must be multiplier[,base[,allowed-length[,last-n]]]")
    return (*(_number(part) for part in parts[:2]), *(_whole(part) for part in parts[2:]))


def _mirostat(value: object) -> tuple[float, ...]:
    """`version[,tau[,eta]]`."""
    parts = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else [value]
    if not 1 <= len(parts) <= 3:
        raise ValueError("it must be version[,tau[,eta]]")
    return (_whole(parts[0]), *(_number(part) for part in parts[1:]))


def _logit_bias(value: object) -> tuple[tuple[int, float], ...]:
    """`ID+BIAS`, `ID-BIAS`, `ID=BIAS` or `ID:BIAS` (bias may be `-inf`), one or a list of them."""
    import re

    pairs = []
    for item in _texts(value):
        found = re.fullmatch(r"\s*(\d+)\s*(?:[=:]\s*([+-]?[\w.]+)|([+-][\w.]+))\s*", item)
        if not found:
            raise ValueError(f"{item!r} is not ID=BIAS (for example 1234=-inf or 1234+2.5)")
        pairs.append((int(found[1]), float(found[2] or found[3])))
    return tuple(pairs)


def _order(value: object) -> tuple[str, ...]:
    parts = value.replace(";", ",").split(",") if isinstance(value, str) else _texts(value)
    return tuple(part.strip().replace("-", "_") for part in parts if part.strip())


OPTIONS: dict[str, Parser] = {
    "model": _name,
    "system": _text,
    "max_tokens": _integer,
    "stop": _texts,
    "ctx": _auto_or_integer,
    "on_overflow": _overflow,
    "timeout": _number,
    "ignore_eos": _boolean,
    "temperature": _number,
    "top_k": _integer,
    "top_p": _number,
    "min_p": _number,
    "typical_p": _number,
    "top_n_sigma": _number,
    "xtc": _pair,
    "dry": _dry,
    "repeat_penalty": _number,
    "repeat_last_n": _integer,
    "frequency_penalty": _number,
    "presence_penalty": _number,
    "mirostat": _mirostat,
    "logit_bias": _logit_bias,
    "seed": _integer,
    "sampler_order": _order,
    "think": _boolean,
    "think_budget": _integer,
    "parallel": _integer,
    "threads": _auto_or_integer,
    "gpu_layers": _gpu_layers,
    "split_mode": _text,
    "tensor_split": _shares,
    "main_gpu": _integer,
    "cpu_moe": _boolean,
    "n_cpu_moe": _integer,
    "rpc": _endpoints,
    "kv_type": _text,
    "flash_attention": _boolean,
    "batch_size": _integer,
    "ubatch_size": _integer,
    "mmap": _boolean,
    "cache": _boolean,
    "draft": _name,
    "engine": _name,
    "strict": _boolean,
    "offline": _boolean,
    "quiet": _boolean,
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


def _parsed(parse: Parser, value: object, where: str) -> Any:
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
