"""Who is inside when something is freed, and who gets in afterwards."""

from __future__ import annotations

import threading

import pytest

from localrun.errors import EngineError
from localrun.local.gate import Gate


def test_closing_waits_for_those_inside_and_lets_nobody_in() -> None:
    gate = Gate()
    entered, leave, closed = threading.Event(), threading.Event(), threading.Event()

    def stay() -> None:
        with gate.inside(), gate.inside():
            entered.set()
            leave.wait(10)

    def close() -> None:
        gate.close()
        gate.wait_empty()
        closed.set()

    threads = [threading.Thread(target=stay), threading.Thread(target=close)]
    threads[0].start()
    assert entered.wait(10)
    threads[1].start()
    assert not closed.wait(0.1)
    with pytest.raises(EngineError, match="closed"), gate.inside():
        pass
    leave.set()
    assert closed.wait(10)
    for thread in threads:
        thread.join()


def test_one_who_closes_from_inside_does_not_wait_for_itself() -> None:
    gate = Gate()
    with gate.inside():
        gate.close()
        gate.wait_empty()


def test_in_a_forked_process_nobody_gets_in_and_closing_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    inside = gate.inside()
    inside.__enter__()
    monkeypatch.setattr("localrun.local.gate.os.getpid", lambda: -1)
    with pytest.raises(EngineError, match="forked"), gate.inside():
        pass
    gate.close()
    gate.wait_empty()
    inside.__exit__(None, None, None)
