"""What a check says, and how checks are run.

Knows threads and time; knows no subject. Invariants: a check that hangs or fails is a finding of its own and never
stops the others, and the order of the findings is that of the checks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "info", "warning", "error"]
"""`info`: nothing to mend; `warning`: costs speed, room or a feature; `error`: keeps it from working."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    subject: str
    status: Status
    text: str
    fix: str | None = None
    """The exact command, or what to do."""
    facts: dict[str, Any] = field(default_factory=dict)
    """For `--json`."""

    @property
    def is_well(self) -> bool:
        return self.status in ("ok", "info")


@dataclass(frozen=True, slots=True)
class Check:
    """A function that looks at one subject and changes nothing."""

    subject: str
    look: Callable[[], Iterable[Finding]]
    limit_s: float = 5.0


def run_checks(checks: Iterable[Check]) -> Iterator[Finding]:
    """The findings of every check, in order, as they come."""
    for check in checks:
        yield from _run(check)


def _run(check: Check) -> list[Finding]:
    findings: list[Finding] = []
    failures: list[Exception] = []

    def look() -> None:
        try:
            findings.extend(check.look())
        except Exception as error:  # whatever is wrong with the machine, the other checks must run
            failures.append(error)

    started = time.perf_counter()
    # A daemon: what hangs in a driver or a network mount cannot be ended, but it can be left behind.
    thread = threading.Thread(target=look, name=f"localrun-doctor-{check.subject}", daemon=True)
    thread.start()
    thread.join(check.limit_s)
    if thread.is_alive():
        seconds = time.perf_counter() - started
        return [*findings, Finding(check.subject, "error", f"no answer within {seconds:.0f} s: something there hangs")]
    if failures:
        error = failures[0]
        text = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
        return [
            *findings,
            Finding(check.subject, "error", f"it cannot be checked: {text}", getattr(error, "hint", None)),
        ]
    return findings
