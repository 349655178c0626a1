"""What the terminal can show, and where each setting comes from."""

from __future__ import annotations

import locale
import os
import shutil
import sys
from collections.abc import Iterator

from localrun.config import OPTIONS, Config, variable
from localrun.doctor.finding import Finding
from localrun.doctor.rights import opens, unreadable
from localrun.errors import LocalrunError
from localrun.paths import default_paths


def look_at_terminal() -> Iterator[Finding]:
    """Size, colours, encoding."""
    term = os.environ.get("TERM", "")
    columns, lines = shutil.get_terminal_size()
    true_colour = os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit")
    colours = "no colours" if os.environ.get("NO_COLOR") else "true colour" if true_colour else "256 colours or fewer"
    encoding = (sys.stdout.encoding or "unknown").lower()
    facts = {
        "is_terminal": sys.stdout.isatty(), "TERM": term, "columns": columns, "lines": lines,
        "encoding": encoding, "locale": locale.getlocale()[0],
    }  # fmt: skip
    if not sys.stdout.isatty():
        yield Finding("terminal", "info", f"stdout is no terminal; text goes out as UTF-8 ({encoding})", facts=facts)
    elif term in ("", "dumb"):
        text = f"TERM is {term!r}: no colours, bars or full-screen chat; `localrun chat --plain` works"
        yield Finding("terminal", "warning", text, "export TERM=xterm-256color", facts)
    elif columns < 60 or lines < 16:
        text = f"{columns} × {lines} characters: too small for the full-screen chat"
        yield Finding("terminal", "warning", text, "make the window larger, or use `localrun chat --plain`", facts)
    else:
        yield Finding("terminal", "ok", f"{term}, {columns} × {lines}, {colours}, {encoding}", facts=facts)


def look_at_settings() -> Iterator[Finding]:
    """Each setting that is not at its default, with its origin; a file or variable that makes no sense."""
    paths = default_paths()
    file = paths.config_file
    try:
        config = Config(file=file)
    except LocalrunError as error:
        fix = error.hint or f"edit {file}"
        yield Finding("settings", "error", error.message, fix if unreadable(file) is None else opens(file))
        return
    changed: dict[str, dict[str, object]] = {}
    problems = []
    for name in OPTIONS:
        try:
            setting = config.setting(name)
        except LocalrunError as error:
            problems.append(Finding("settings", "error", error.message, f"unset {variable(name)}, or edit {file}"))
            continue
        if setting.origin != "default":
            changed[name] = {"value": setting.value, "origin": setting.origin}
    yield from problems
    if not problems:
        for check in (config.engine, config.generation):
            try:
                check()
            except LocalrunError as error:
                yield Finding("settings", "error", error.message, error.hint or f"edit {file}")
    for name, value in _strangers():
        yield Finding("settings", "warning", f"{name}={value} is no setting of localrun", f"unset {name}")
    listed = "; ".join(f"{name} = {entry['value']} (from {entry['origin']})" for name, entry in changed.items())
    where = f"{file}" if os.path.exists(file) else f"no {file}"
    facts = {
        "file": str(file),
        "changed": {name: {**entry, "value": str(entry["value"])} for name, entry in changed.items()},
    }
    yield Finding("settings", "ok", f"{listed or 'all at their defaults'} ({where})", facts=facts)


def _strangers() -> list[tuple[str, str]]:
    """Variables that look like ours and are not: a misspelt one is silently without effect."""
    known = {variable(name) for name in OPTIONS} | {"LOCALRUN_HOME", "LOCALRUN_COMPLETE", "LOCALRUN_TEST_CACHE"}
    return [
        (name, value)
        for name, value in sorted(os.environ.items())
        if name.startswith("LOCALRUN_") and name not in known and "API_KEY" not in name
    ]
