"""A server on loopback that says exactly what a test tells it to, damage included."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

Step = bytes | float | str
"""Bytes to send; seconds to wait; `"drop"`: reset the connection; `"hang"`: say nothing until the client goes."""
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def chunk(**fields: Any) -> bytes:
    """One event with one choice."""
    finish = fields.pop("finish", None)
    top = {key: fields.pop(key) for key in ("usage", "model") if key in fields}
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": finish}], **top})


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


USAGE = event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}})
DONE = b"data: [DONE]\n\n"


def said(*texts: str, finish: str = "stop") -> list[Step]:
    """A whole answer."""
    return [STREAM_HEAD, *(chunk(content=text) for text in texts), chunk(finish=finish), USAGE, DONE]


def plain(status: int, body: Any, **headers: str) -> list[Step]:
    """A whole response that is no stream."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Status", f"Content-Length: {len(content)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ["\r\n".join(lines).encode() + b"\r\n\r\n" + content]


@dataclass
class Received:
    """One request that came in."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class ScriptedServer:
    """Answers POSTs from a list of scripts, one a request (the last one for ever), and GETs from a table."""

    scripts: list[list[Step]]
    owner: str = "someone"
    gets: dict[str, Any] = field(default_factory=dict)
    models: tuple[str, ...] = ("tiny",)
    received: list[Received] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0

    def __enter__(self) -> ScriptedServer:
        self._lock = threading.Lock()
        self._closing = False
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads: list[threading.Thread] = []
        self._open: set[socket.socket] = set()
        acceptor = threading.Thread(target=self._accept)
        acceptor.start()
        self._threads.append(acceptor)
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._open):
            _shut(connection)
        for thread in list(self._threads):
            thread.join(10)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request.body for request in self.received]

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.add(connection)
            thread = threading.Thread(target=self._serve, args=[connection])
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._exchange(connection)
            except OSError:
                return
            finally:
                self._open.discard(connection)

    def _exchange(self, connection: socket.socket) -> None:
        reader = connection.makefile("rb")
        method, path, _ = reader.readline().decode().split(" ", 2)
        headers = {}
        while line := reader.readline().decode().strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if method == "GET":
            self._play(connection, self._page(path))
            return
        body = json.loads(reader.read(int(headers["content-length"])))
        with self._lock:
            self.received.append(Received(path, headers, body))
            script = self.scripts[min(len(self.received), len(self.scripts)) - 1]
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            self._play(connection, script)
        finally:
            with self._lock:
                self.in_flight -= 1

    def _page(self, path: str) -> list[Step]:
        if path in self.gets:
            return plain(200, self.gets[path])
        if path == "/v1/models":
            return plain(200, {"data": [{"id": name, "owned_by": self.owner} for name in self.models]})
        return plain(404, {"error": {"message": "not found"}})

    def _play(self, connection: socket.socket, steps: Iterable[Step]) -> None:
        actions: dict[str, Callable[[], None]] = {
            "drop": lambda: connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0"),
            "hang": lambda: _wait_for_the_end(connection),
        }
        for step in steps:
            if isinstance(step, bytes):
                connection.sendall(step)
            elif isinstance(step, str):
                actions[step]()
                return
            else:
                time.sleep(step)


def _wait_for_the_end(connection: socket.socket) -> None:
    while connection.recv(4096):
        continue


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # gone already
