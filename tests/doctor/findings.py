"""The finding that a test of the doctor asks for."""

from __future__ import annotations

from collections.abc import Iterable

from localrun.doctor.finding import Finding


def one(findings: Iterable[Finding], subject: str | None = None) -> Finding:
    found = [finding for finding in findings if subject in (None, finding.subject)]
    assert len(found) == 1, found
    return found[0]
