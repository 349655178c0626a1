"""Small servers on loopback for the catalogue's tests: a model hub, a package index, a plain web server."""

from __future__ import annotations

import hashlib
import io
import json
import re
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34


@dataclass
class Faults:
    """What goes wrong, and how often it still does."""

    cut_after: int | None = None
    """Close the connection after so many bytes of each body."""
    cuts_left: int = 1000
    status: int | None = None
    """Answer every request for a file with this status."""
    status_after_cut: int | None = None
    """The same, once a connection has been cut."""
    ignore_range: bool = False
    ignore_if_range: bool = False
    corrupt: bool = False
    """Send other bytes of the same number."""
    extra: bytes = b""
    """Send more than was announced."""
    slow_s: float = 0.0
    """Wait so long after each 64 KiB."""
    hold_until: Callable[[], bool] | None = None
    """Send the last 64 KiB only when this holds (or after half a minute)."""
    retry_after: str | None = None


@dataclass
class Served:
    """A running server: its files by path, its faults, and the requests it has seen."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    """(method, path, Range header)."""
    etags: dict[str, str] = field(default_factory=dict)
    gated: bool = False
    private: bool = False

    @property
    def ranges(self) -> list[str]:
        return [wanted for _, _, wanted in self.requests if wanted]

    def bodies(self) -> int:
        """How many files were asked for."""
        return sum(method == "GET" and ".gguf" in path for method, path, _ in self.requests)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: Served

    def log_message(self, format: str, *args: object) -> None:
        return

    def do_HEAD(self) -> None:
        self.respond(body=False)

    def do_GET(self) -> None:
        self.respond(body=True)

    def respond(self, *, body: bool) -> None:
        self.served.requests.append((self.command, self.path, self.headers.get("Range")))
        path = unquote(urlsplit(self.path).path)
        if path in self.served.files:
            self.send_file(path, self.served.files[path], {}, body)
        else:
            self.send_status(404)

    def send_status(self, status: int, headers: dict[str, str] | None = None, content: bytes = b"{}") -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def send_file(self, path: str, content: bytes, headers: dict[str, str], body: bool) -> None:
        faults = self.served.faults
        if faults.status is not None:
            extra = {"Retry-After": faults.retry_after} if faults.retry_after else {}
            self.send_status(faults.status, extra)
            return
        etag = self.served.etags.get(path, f'"{hashlib.sha256(content).hexdigest()}"')
        start = 0
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        condition = self.headers.get("If-Range")
        if match and not faults.ignore_range and (condition in (None, etag) or faults.ignore_if_range):
            start = int(match[1])
            if start >= len(content):
                self.send_status(416, {"Content-Range": f"bytes */{len(content)}"})
                return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(content) - start))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.send_body(bytes(b ^ 1 for b in content[start:]) if faults.corrupt else content[start:])

    def send_body(self, content: bytes) -> None:
        faults = self.served.faults
        cut = faults.cut_after is not None and faults.cuts_left > 0
        if cut:
            faults.cuts_left -= 1
            content = content[: faults.cut_after]
        try:
            for at in range(0, len(content), 1 << 16):
                limit = time.monotonic() + (30 if faults.hold_until and at + (1 << 16) >= len(content) else 0)
                while faults.hold_until and not faults.hold_until() and time.monotonic() < limit:
                    time.sleep(0.005)
                self.wfile.write(content[at : at + (1 << 16)])
                if faults.slow_s:
                    time.sleep(faults.slow_s)
        except OSError:
            self.close_connection = True
            return
        if cut:
            self.close_connection = True
            if faults.status_after_cut is not None:
                faults.status = faults.status_after_cut


def _is_large(name: str) -> bool:
    """Whether the hub keeps the file in its large-file storage, named by SHA-256."""
    return name.endswith((".gguf", ".safetensors"))


class _HubHandler(_Handler):
    """The parts of the hub's interface that its client uses to list and to fetch."""

    def respond(self, *, body: bool) -> None:
        self.served.requests.append((self.command, self.path, self.headers.get("Range")))
        url = urlsplit(self.path)
        if url.path == "/api/models":
            wanted = parse_qs(url.query).get("search", [""])[0].lower()
            repos = sorted({"/".join(path.split("/")[1:3]) for path in self.served.files})
            self.send_json([{"id": repo} for repo in repos if repo.lower().startswith(f"o/{wanted[:4]}")])
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/\w+)?", unquote(url.path)):
            self.send_info(match[1])
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/(\w+)/(.+)", unquote(url.path)):
            self.send_model(match[1], match[3], body)
        else:
            self.send_status(404)

    def send_info(self, repo: str) -> None:
        files = {p.split("/", 3)[3]: c for p, c in self.served.files.items() if p.startswith(f"/{repo}/")}
        if self.served.private or not files:
            self.send_status(401, {"X-Error-Code": "RepoNotFound"})
            return
        siblings = []
        for name, content in files.items():
            sibling = {"rfilename": name, "size": len(content), "blobId": hashlib.sha1(content).hexdigest()}
            if _is_large(name):
                digest = hashlib.sha256(content).hexdigest()
                sibling["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 134}
            siblings.append(sibling)
        self.send_json({"id": repo, "sha": COMMIT, "siblings": siblings})

    def send_model(self, repo: str, name: str, body: bool) -> None:
        content = self.served.files.get(f"/{repo}/{name}")
        if self.served.gated and self.headers.get("Authorization") != "Bearer hf_good":
            self.send_status(403 if "Authorization" in self.headers else 401, {"X-Error-Code": "GatedRepo"})
        elif content is None:
            self.send_status(404, {"X-Error-Code": "EntryNotFound"})
        else:
            headers = {"X-Repo-Commit": COMMIT}
            if _is_large(name):
                digest = hashlib.sha256(content).hexdigest()
                headers |= {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(content))}
            else:
                self.served.etags[f"/{repo}/{name}"] = f'"{hashlib.sha1(content).hexdigest()}"'
            self.send_file(f"/{repo}/{name}", content, headers, body)

    def send_json(self, value: object) -> None:
        self.send_status(200, {"Content-Type": "application/json"}, json.dumps(value).encode())


class _IndexHandler(_Handler):
    """A package index of wheels: `/simple/NAME/` lists those of `files`."""

    def respond(self, *, body: bool) -> None:
        match = re.fullmatch(r"/simple/([^/]+)/", self.path)
        if match is None:
            super().respond(body=body)
            return
        self.served.requests.append((self.command, self.path, None))
        wheels = [p for p in self.served.files if p.startswith(f"/{match[1].replace('-', '_')}-")]
        if not wheels:
            self.send_status(404)
            return
        links = [f'<a href="{p}#sha256={hashlib.sha256(self.served.files[p]).hexdigest()}">{p[1:]}</a>' for p in wheels]
        page = f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>"
        self.send_status(200, {"Content-Type": "text/html"}, page.encode())


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is part of several tests."""


@contextmanager
def _serve(handler: type[_Handler]) -> Iterator[Served]:
    served = Served()
    server = _Server(("127.0.0.1", 0), type("Handler", (handler,), {"served": served}))
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def hub_server() -> AbstractContextManager[Served]:
    return _serve(_HubHandler)


def index_server() -> AbstractContextManager[Served]:
    return _serve(_IndexHandler)


def web_server() -> AbstractContextManager[Served]:
    return _serve(_Handler)


def wheel(package: str, version: str, members: dict[str, bytes]) -> tuple[str, bytes]:
    """(path, content) of a wheel that holds `members`."""
    name = package.replace("-", "_")
    info = f"{name}-{version}.dist-info"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for member, content in members.items():
            file.writestr(member, content)
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
    return f"/{name}-{version}-py3-none-any.whl", buffer.getvalue()
