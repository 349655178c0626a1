"""What remote engines really do with our requests: each kind of request to each real server at hand.

    python benchmarks/remote_engines.py MODEL.gguf

Servers: `LLAMA_SERVER` (else `llama-server` on the PATH), `python -m llama_cpp.server` of `LLAMA_CPP_SERVER_PYTHON`,
the server of xllamacpp of `XLLAMACPP_PYTHON`, and our own. One line for each check and server: ok, the warning that was
given, or what went wrong. Ends with 1 if a check failed without a warning: a server that cannot do something must be
known for it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from localrun.chat.messages import Message
from localrun.errors import ContextOverflowError, InvalidOutputError, LocalrunError, UsageError
from localrun.params import ConstraintSpec, GenerationParams, SamplingParams
from localrun.remote import open_remote
from localrun.remote.responder import RemoteResponder
from localrun.responder import Done, Request, Result, TextPiece

GREEDY = SamplingParams(temperature=0)
ASK = (Message("user", "Name a fruit."),)
SCHEMA = '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}'


def answer(engine: RemoteResponder, **fields: object) -> Result:
    params = GenerationParams(**{"sampling": GREEDY, "max_tokens": 16, **fields})  # type: ignore[arg-type]
    return last(engine, Request(params, ASK))


def last(engine: RemoteResponder, request: Request) -> Result:
    *_, end = engine.respond(request)
    assert isinstance(end, Done)
    return end.result


def plain(engine: RemoteResponder) -> Result:
    result = answer(engine)
    assert result.text
    assert result.finish in ("stop", "length")
    assert result.usage.prompt_tokens > 5 or result.warnings, "the server counts"
    return result


def seeds(engine: RemoteResponder) -> Result:
    texts = [answer(engine, sampling=SamplingParams(temperature=1.5, seed=seed)).text for seed in (5, 5, 6)]
    assert texts[0] == texts[1] != texts[2], texts
    return plain(engine)


def stops(engine: RemoteResponder) -> Result:
    text = plain(engine).text
    result = answer(engine, stop=(text[4:7],))
    assert result.text == text.split(text[4:7])[0], result.text
    return result


def constraint(kind: str, source: str | tuple[str, ...]) -> Callable[[RemoteResponder], Result]:
    def check(engine: RemoteResponder) -> Result:
        spec = ConstraintSpec(kind, source)  # type: ignore[arg-type]
        return answer(engine, constraint=spec, max_tokens=40)  # validated by the responder

    return check


def bias(engine: RemoteResponder) -> Result:
    result = answer(engine, sampling=SamplingParams(temperature=0, logit_bias=((28, 100.0),)), max_tokens=4)
    assert len(set(result.text.split())) <= 1 or result.warnings, result.text
    return result


def prefill(engine: RemoteResponder) -> Result:
    begun = Request(GenerationParams(GREEDY, 6), ASK, prefill="My favourite fruit is the ban")
    result = last(engine, begun)
    assert result.text.startswith("ana"), result.text
    return result


def raw(engine: RemoteResponder) -> Result:
    result = last(engine, Request(GenerationParams(GREEDY, 6), raw=b"one two three four five six"))
    assert result.text
    return result


def overflow(engine: RemoteResponder) -> Result:
    try:
        last(engine, Request(GenerationParams(GREEDY, 4), (Message("user", "word " * 5000),)))
    except ContextOverflowError as error:
        told = error.message
    else:
        raise AssertionError("a prompt that does not fit was answered")
    assert "5,0" in told, told
    return plain(engine)


def stopping(engine: RemoteResponder) -> Result:
    running = engine.respond(Request(GenerationParams(GREEDY, 400, ignore_eos=True), ASK))
    for event in running:
        if isinstance(event, TextPiece):
            threading.Thread(target=engine.stop).start()
        if isinstance(event, Done):
            assert event.result.finish == "interrupted"
            return event.result
    raise AssertionError("no end")


XLLAMACPP = """
import sys, threading, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel, params.port = sys.argv[1], 1024, 1, int(sys.argv[2])
server = xllamacpp.Server(params)
threading.Event().wait()
"""


CHECKS: dict[str, Callable[[RemoteResponder], Result]] = {
    "answers and counts": plain,
    "seeds repeat": seeds,
    "stop strings": stops,
    "JSON Schema": constraint("json_schema", SCHEMA),
    "grammar": constraint("gbnf", 'root ::= "x" [0-9]{3}'),
    "regex": constraint("regex", "x[0-9]{3}"),
    "choice": constraint("choice", ("apple pie", 'a "pear"')),
    "logit bias": bias,
    "continues a begun answer": prefill,
    "raw prompt": raw,
    "too long": overflow,
    "stops": stopping,
}


@contextmanager
def servers(model: str) -> Iterator[dict[str, str]]:
    """Every server at hand, running."""
    peer = os.environ.get("LLAMA_SERVER") or shutil.which("llama-server")
    python = os.environ.get("LLAMA_CPP_SERVER_PYTHON")
    ours = [sys.executable, "-m", "localrun", "serve", "-m", model, "--ctx", "1024", "--parallel", "1", "--port"]
    commands = {"localrun": ours}
    if peer:
        commands["llama-server"] = [peer, "-m", model, "-c", "1024", "-np", "1", "--no-webui", "--port"]
    if python:
        commands["llama-cpp-python"] = [python, "-m", "llama_cpp.server", "--model", model, "--n_ctx", "1024", "--port"]
    if python := os.environ.get("XLLAMACPP_PYTHON"):
        commands["xllamacpp"] = [python, "-c", XLLAMACPP, model]
    processes, urls = [], {}
    try:
        for name, command in commands.items():
            with socket.create_server(("127.0.0.1", 0)) as listener:
                port = listener.getsockname()[1]
            log = Path(tempfile.gettempdir()) / f"remote-{name}.log"
            with log.open("wb") as out:
                processes.append(subprocess.Popen([*command, str(port)], stdout=out, stderr=out))
            urls[name] = f"http://127.0.0.1:{port}"
            wait(urls[name], processes[-1], log)
        yield urls
    finally:
        for process in processes:
            process.terminate()
            process.wait(30)


def wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        try:
            if httpx2.get(f"{url}/v1/models").status_code == 200:
                return
        except httpx2.TransportError:
            pass
        if process.poll() is not None:
            raise SystemExit(f"a server ended:\n{log.read_text()[-2000:]}")
        time.sleep(0.1)
    raise SystemExit(f"a server does not answer:\n{log.read_text()[-2000:]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    failed = 0
    with servers(parser.parse_args().model) as urls:
        for name, url in urls.items():
            engine = open_remote(url)
            print(f"{name} ({engine.info.details['server']}, context {engine.info.context_limit})")
            for title, check in CHECKS.items():
                told = "ok"
                try:
                    told = "; ".join(w.message for w in check(engine).warnings) or "ok"
                except LocalrunError as error:
                    told = f"error: {error.message}"
                    failed += not isinstance(error, InvalidOutputError | UsageError)
                except AssertionError as error:
                    told = f"WRONG: {error}"
                    failed += 1
                print(f"  {title:26} {told}")
            engine.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
