"""The process that serves: sockets, signals, announcement, and the end.

Knows uvicorn and the operating system; knows no endpoint. Invariants: what can be wrong with the settings is said
before a model is read; nothing is announced before it answers; SIGTERM and Ctrl-C let running answers finish, a second
one does not.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from localrun.errors import LocalrunError, UsageError
from localrun.paths import ensure_private, runtime_dir
from localrun.remote.neighbours import Announcement, announce
from localrun.serve.app import ServeOptions, Service, make_app
from localrun.serve.failures import ApiError
from localrun.serve.servable import Servable
from localrun.turns import short_turns

_LONGEST_SOCKET_PATH = 100
"""Bytes; the address of a Unix socket holds 104 (macOS) or 108 (Linux)."""
_KEEP_ALIVE_S = 30


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    host: str = "127.0.0.1"
    port: int = 8080
    announce: bool = True
    """Whether this user's other commands can find the server (`--engine local`, `ps`)."""

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(slots=True)
class Running:
    """A server that answers. `stop` may be called from any thread."""

    url: str
    stop: Callable[[], None]
    service: Service
    loop: asyncio.AbstractEventLoop


def serve(
    servables: list[Servable],
    options: ServeOptions,
    address: Address,
    *,
    available: Callable[[], int],
    preload: bool = True,
    on_ready: Callable[[Running], None] | None = None,
) -> None:
    """Serve until a signal comes. Raises `LocalrunError` for what keeps it from starting."""
    check_access(options, address)
    with _listeners(address) as (listeners, url, path):
        try:
            with short_turns():
                asyncio.run(_serve(servables, options, listeners, url, path, available, preload, on_ready))
        except KeyboardInterrupt:
            return  # uvicorn raises the signal again after it has stopped


def check_access(options: ServeOptions, address: Address) -> None:
    """Raise `UsageError` for a port that is none, and an address that others can reach while no key is asked for."""
    if not 0 <= address.port <= 65535:
        raise UsageError(f"--port is {address.port}, outside [0, 65535]")
    if options.rules.key is None and not address.is_loopback:
        raise UsageError(
            f"--host {address.host} can be reached by other machines, and no API key is set",
            hint="export LOCALRUN_API_KEY=…, or name another variable with --api-key-env",
        )


async def _serve(
    servables: list[Servable],
    options: ServeOptions,
    listeners: list[socket.socket],
    url: str,
    path: Path | None,
    available: Callable[[], int],
    preload: bool,
    on_ready: Callable[[Running], None] | None,
) -> None:
    service = Service(servables, options, available)
    announcement: Path | None = None
    try:
        if preload:
            await _preload(service)
        config = uvicorn.Config(
            make_app(service),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_keep_alive=_KEEP_ALIVE_S,
        )
        server = _Server(config)
        running = Running(url, server.stop, service, asyncio.get_running_loop())

        def ready() -> None:
            nonlocal announcement
            if path is not None:
                announcement = announce(Announcement(os.getpid(), url, str(path), time.time()))
            if on_ready is not None:
                on_ready(running)

        server.on_ready = ready
        await server.serve(listeners)
    finally:
        if announcement is not None:
            announcement.unlink(missing_ok=True)
        await service.pool.close()


async def _preload(service: Service) -> None:
    try:
        async with service.pool.use(None):
            return
    except ApiError as error:
        cause = error.__cause__
        if isinstance(cause, LocalrunError):
            raise cause from error
        raise


class _Server(uvicorn.Server):
    """Says when it answers."""

    on_ready: Callable[[], None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self.on_ready is not None:
            self.on_ready()

    def stop(self) -> None:
        """As SIGTERM does."""
        self.should_exit = True


@contextmanager
def _listeners(address: Address) -> Iterator[tuple[list[socket.socket], str, Path | None]]:
    """The open sockets, the URL, and the path of the Unix socket if there is one."""
    with ExitStack() as stack:
        tcp = stack.enter_context(_open_tcp(address))
        port = tcp.getsockname()[1]
        shown = "127.0.0.1" if address.host in ("0.0.0.0", "::") else address.host
        url = f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"
        path = runtime_dir() / f"{os.getpid()}-{port}.sock"
        if not address.announce or len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
            yield [tcp], url, None
            return
        unix = stack.enter_context(_open_unix(path))
        stack.callback(path.unlink, missing_ok=True)
        yield [tcp, unix], url, path


def _open_tcp(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=2048)
    except OSError as error:
        if error.errno in (98, 48):  # EADDRINUSE on Linux and macOS
            hint = "--port chooses another; 0 takes any that is free"
            raise UsageError(f"port {address.port} is in use", hint=hint) from error
        raise UsageError(f"cannot listen on {address.host} port {address.port}: {error.strerror or error}") from error


def _open_unix(path: Path) -> socket.socket:
    ensure_private(path.parent)
    path.unlink(missing_ok=True)
    unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    unix.bind(str(path))
    path.chmod(0o600)
    unix.listen(2048)
    return unix
