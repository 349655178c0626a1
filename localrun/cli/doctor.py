"""`localrun doctor`: what works here, what does not, and the command that fixes it.

Knows output and the order of the checks; each check knows its subject. Invariant: nothing is changed, fetched or
waited for without end, and the exit code is 0 only when there is nothing to mend.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localrun.cli import options as o
from localrun.cli.output import is_fancy, to_json, write_stdout

if TYPE_CHECKING:
    from localrun.doctor.finding import Check, Finding

_MARKS = {"ok": "ok  ", "info": "note", "warning": "warn", "error": "FAIL"}
_COLOURS = {"ok": "32", "info": "36", "warning": "33", "error": "31"}


def doctor(
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    self_test: Annotated[
        bool, typer.Option("--self-test/--no-self-test", help="Generate a few tokens with the default model.")
    ] = True,
    offline: o.Offline = None,
) -> int:
    """Check what works on this machine. Exit code 0 only when all is well, 1 otherwise."""
    from localrun.doctor.finding import run_checks

    findings = []
    for finding in run_checks(_checks(offline=offline, self_test=self_test)):
        findings.append(finding)
        if not json_output:
            write_stdout(_text(finding))
    well = all(finding.is_well for finding in findings)
    if json_output:
        write_stdout(to_json({"well": well, "findings": [_json(finding) for finding in findings]}))
    else:
        write_stdout(_verdict(findings))
    return 0 if well else 1


def _checks(*, offline: bool | None, self_test: bool) -> list[Check]:
    from localrun.doctor import engine, network, resources, selftest, software, stores, surface
    from localrun.doctor.finding import Check

    name, path = _default_model()
    off = _is_offline(offline)
    checks = [
        Check("python", software.look_at_python),
        Check("packages", software.look_at_packages),
        Check("engine", engine.look_at_engine, limit_s=engine.PROBE_LIMIT_S + 10),
        Check("openmp", engine.look_at_openmp),
        Check("memory", resources.look_at_memory),
        Check("load", resources.look_at_load),
        Check("disk", resources.look_at_disk),
        Check("hub", lambda: network.look_at_hub(offline=off, model_is_here=path is not None), limit_s=8),
        Check("token", network.look_at_token),
        Check("terminal", surface.look_at_terminal),
        Check("settings", surface.look_at_settings),
        Check("models", stores.look_at_stores, limit_s=15),
        Check("sessions", stores.look_at_sessions, limit_s=15),
        Check("cache", stores.look_at_caches, limit_s=15),
    ]
    if self_test:
        test = Check("self-test", lambda: selftest.look_at_an_answer(path, name), limit_s=selftest.LIMIT_S + 10)
        checks.append(test)
    return checks


def _default_model() -> tuple[str, Any]:
    """The default model's name ("" where it cannot be known), and where it lies; None where it is not here."""
    from localrun.catalog import find, load_catalogue
    from localrun.cli.settings import load_config
    from localrun.errors import LocalrunError

    name = ""
    try:
        name = load_config({}).get("model") or load_catalogue().default
        file = find(name)
    except LocalrunError:  # a wrong setting or catalogue: the check of settings tells
        return name, None
    return name, file.path if file is not None else None


def _is_offline(flag: bool | None) -> bool:
    from localrun.cli.settings import load_config
    from localrun.errors import LocalrunError

    try:
        return bool(load_config({"offline": flag}).get("offline"))
    except LocalrunError:  # the check of settings tells
        return bool(flag)


def _text(finding: Finding) -> str:
    mark = _MARKS[finding.status]
    if is_fancy(sys.stdout):
        mark = f"\x1b[{_COLOURS[finding.status]}m{mark}\x1b[0m"
    fix = f"{'':>6}{'':<10} fix: {finding.fix}\n" if finding.fix else ""
    return f"{mark}  {finding.subject:<10} {finding.text}\n{fix}"


def _json(finding: Finding) -> dict[str, Any]:
    return {
        "subject": finding.subject,
        "status": finding.status,
        "text": finding.text,
        "fix": finding.fix,
        "facts": finding.facts,
    }


def _verdict(findings: list[Finding]) -> str:
    bad = [finding for finding in findings if not finding.is_well]
    if not bad:
        return "\nall is well\n"
    return f"\n{len(bad)} {'thing' if len(bad) == 1 else 'things'} to mend\n"
