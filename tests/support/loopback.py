"""Real HTTP servers on the loopback interface: of a script, or of what a subclass answers."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self

Fault = Literal["none", "drop", "reset", "half-body", "hang"]


@dataclass(frozen=True, slots=True)
class Scripted:
    """One answer, sent after `delay` seconds. `body` other than bytes or str is sent as JSON.

    `fault`: "drop" closes the connection before a status line, "reset" resets it, "half-body"
    announces the whole body and sends half, "hang" never answers (until the server is closed).
    """

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    fault: Fault = "none"
    delay: float = 0.0

    @property
    def payload(self) -> bytes:
        """The body as sent."""
        if isinstance(self.body, bytes):
            return self.body
        return (self.body if isinstance(self.body, str) else json.dumps(self.body)).encode()


@dataclass(frozen=True, slots=True)
class Received:
    """One request as the server saw it; `target` is the raw request target."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body decoded as JSON, {} where it is empty."""
        return json.loads(self.body or b"{}")


class HttpServer:
    """An HTTP server in threads, as a context manager. `requests` keep the order of arrival."""

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("Handler", (_Handler,), {"owner": self})
        )
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    @property
    def address(self) -> str:
        """`127.0.0.1:PORT`."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`, without a slash at the end."""
        return f"http://{self.address}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)

    def answer(self, request: Received) -> Scripted:
        """What to send."""
        raise NotImplementedError


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: HttpServer

    def _answer(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Received(self.command, self.path, headers, self._content())
        with self.owner.lock:
            self.owner.requests.append(request)
        answer = self.owner.answer(request)
        self.owner.closing.wait(answer.delay)
        self.close_connection = answer.fault != "none"
        if answer.fault == "hang":
            self.owner.closing.wait(30)
        elif answer.fault == "reset":
            linger = struct.pack("ii", 1, 0)  # a close with a zero linger time sends RST
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
        elif answer.fault != "drop":
            self._send(answer)

    do_GET = do_POST = do_PUT = do_DELETE = _answer

    def _content(self) -> bytes:
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _send(self, answer: Scripted) -> None:
        payload = answer.payload
        headers = {"content-type": answer.content_type, "content-length": str(len(payload))}
        try:
            self.send_response(answer.status)
            for name, value in (*headers.items(), *answer.headers.items()):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(payload[: len(payload) // 2] if answer.fault != "none" else payload)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client has given up waiting

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the tests read `requests`."""


class LoopbackServer(HttpServer):
    """Plays `script` in order of arrival; the last answer repeats."""

    def __init__(self, script: Sequence[Scripted]) -> None:
        super().__init__()
        self._script = list(script)

    def answer(self, request: Received) -> Scripted:
        with self.lock:
            return self._script.pop(0) if len(self._script) > 1 else self._script[0]


def loopback(*script: Scripted) -> LoopbackServer:
    """A server that plays `script`, for a `with` block."""
    return LoopbackServer(script or (Scripted(),))
