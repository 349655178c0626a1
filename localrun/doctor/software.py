"""Python and the packages that localrun needs: present, and in the range it was tested with."""

from __future__ import annotations

import platform
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec

from localrun import __version__
from localrun.doctor.finding import Finding

_TESTED = ((3, 11), (3, 14))
"""From the first to below the second: `requires-python`."""


def look_at_python() -> Iterator[Finding]:
    """Versions of localrun, Python and the system."""
    python = platform.python_version()
    text = f"localrun {__version__}, Python {python} ({platform.python_implementation()}), {platform.platform()}"
    low, high = _TESTED
    facts = {"localrun": __version__, "python": python, "executable": sys.executable, "platform": platform.platform()}
    if low <= sys.version_info[:2] < high:
        yield Finding("python", "ok", text, facts=facts)
    else:
        wanted = f"{low[0]}.{low[1]} to {high[0]}.{high[1] - 1}"
        yield Finding("python", "warning", f"{text}: tested with {wanted}", f"use Python {wanted}", facts)
    if platform.python_implementation() != "CPython":
        yield Finding("python", "warning", "only CPython is tested", "use CPython")


def look_at_packages() -> Iterator[Finding]:
    """Every package that localrun's metadata asks for, with its version."""
    found: dict[str, str] = {}
    problems = []
    for requirement in requires("localrun") or []:
        if "extra ==" in requirement:
            continue
        name = re.split(r"[\s\[<>=!~;(]", requirement, maxsplit=1)[0]
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            problems.append(Finding("packages", "error", f"{name} is missing", install(requirement)))
            continue
        if not satisfies(found[name], requirement):
            text = f"{name} {found[name]} is outside the tested range: {requirement}"
            problems.append(Finding("packages", "warning", text, install(requirement)))
    yield from problems
    if not problems:
        listed = ", ".join(f"{name} {number}" for name, number in found.items())
        yield Finding("packages", "ok", listed, facts=found)


def satisfies(found: str, requirement: str) -> bool:
    """Whether a version lies within `NAME>=A,<B`; only the numbers before any suffix are compared."""
    for operator, bound in re.findall(r"(>=|<=|==|!=|<|>)\s*([\d.]+)", requirement.split(";")[0]):
        ours, theirs = _numbers(found), _numbers(bound)
        width = max(len(ours), len(theirs))
        ours, theirs = ours + (0,) * (width - len(ours)), theirs + (0,) * (width - len(theirs))
        verdicts = {">=": ours >= theirs, "<=": ours <= theirs, "==": ours == theirs, "!=": ours != theirs}
        if not (verdicts | {"<": ours < theirs, ">": ours > theirs})[operator]:
            return False
    return True


def _numbers(text: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def install(requirement: str, *, cmake: str | None = None, rebuild: bool = False) -> str:
    """The command that installs `requirement` for this Python, with whatever installer is here."""
    quoted = shlex.quote(requirement.split(";")[0].strip())
    settings = f'CMAKE_ARGS="{cmake}" ' if cmake else ""
    if find_spec("pip") is None and shutil.which("uv"):
        again = " --reinstall --no-cache" if rebuild else ""
        binary = f" --no-binary {quoted.split('=')[0]}" if cmake else ""
        return f"{settings}uv pip install --python {shlex.quote(sys.executable)}{again}{binary} {quoted}"
    again = " --force-reinstall --no-cache-dir" if rebuild else ""
    binary = " --no-binary llama-cpp-python" if cmake else ""
    return f"{settings}{shlex.quote(sys.executable)} -m pip install{again}{binary} {quoted}"
