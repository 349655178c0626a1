"""A model spread over RPC servers answers as it does alone. Needs an engine that was built with them."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from localrun.llama.rpc import supports_rpc
from tests.cli.process import run
from tests.models import smollm2

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(not supports_rpc(), reason="the engine was built without RPC servers (-DGGML_RPC=on)"),
]


@pytest.fixture
def servers() -> Iterator[list[str]]:
    """Two RPC servers on this machine."""
    with ExitStack() as stack:
        endpoints = []
        for _ in range(2):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                endpoint = f"127.0.0.1:{free.getsockname()[1]}"
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.llama.rpc_server", endpoint],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            stack.callback(process.wait)
            stack.callback(process.kill)
            _wait_for(endpoint)
            endpoints.append(endpoint)
        yield endpoints


def _wait_for(endpoint: str) -> None:
    host, port = endpoint.split(":")
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"no RPC server came up on {endpoint}")


QUESTION = ["generate", "--raw", "The capital of France is", "-n", "12", "--temperature", "0", "--no-cache", "--json"]


@pytest.mark.parametrize(
    "more",
    [[], ["--tensor-split", "3,1"], ["--tensor-split", "0,1"], ["--split-mode", "none", "--main-gpu", "1"]],
    ids=lambda more: " ".join(more) or "as it comes",
)
def test_a_model_on_two_servers_answers_as_it_does_alone(servers: list[str], more: list[str]) -> None:
    model = ["-m", str(smollm2())]
    alone = run(*QUESTION, *model)
    spread = run(*QUESTION, *model, "--rpc", ",".join(servers), "--gpu-layers", "all", *more)
    assert (alone.code, spread.code) == (0, 0), spread.err
    assert spread.json["text"][:20] == alone.json["text"][:20]  # devices round differently: later words may differ
    assert spread.json["warnings"] == []


def test_the_plan_counts_the_servers_as_devices(servers: list[str]) -> None:
    asked = ["plan", str(smollm2()), "--rpc", ",".join(servers), "--tensor-split", "1,1", "--json"]
    report = run(*asked).json
    assert [device["backend"] for device in report["machine"]["devices"]] == ["RPC", "RPC"]
    first, second = report["plan"]["gpus"]
    assert first["kv"] == pytest.approx(second["kv"], rel=0.2)


def test_rows_cannot_be_split_over_servers_and_that_is_said(servers: list[str]) -> None:
    done = run(*QUESTION, "-m", str(smollm2()), "--rpc", ",".join(servers), "--split-mode", "row")
    done.assert_refused(2, "cannot share the rows")
