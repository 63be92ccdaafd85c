"""A real HTTP server on the loopback interface that plays a script, transport faults included."""

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
    """One answer. `body` other than bytes or str is sent as JSON.

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
        if isinstance(self.body, str):
            return self.body.encode()
        return json.dumps(self.body).encode()


@dataclass(frozen=True, slots=True)
class Received:
    """One request as the server saw it; `target` is the raw request target."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body decoded as JSON."""
        return json.loads(self.body)


class HttpServer:
    """An HTTP server in threads, as a context manager; `serve` answers each request."""

    def __init__(self) -> None:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                length = int(self.headers.get("content-length", 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                content = self.rfile.read(length)
                owner.serve(self, Received(self.command, self.path, headers, content))

            do_GET = do_POST = _answer

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: the tests read `requests`."""

        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    @property
    def url(self) -> str:
        """`http://127.0.0.1:port`, without a slash at the end."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)

    def serve(self, handler: BaseHTTPRequestHandler, received: Received) -> None:
        """Answer one request."""
        raise NotImplementedError


class LoopbackServer(HttpServer):
    """Plays `script` in order of arrival; the last answer repeats. Requests are kept in order."""

    def __init__(self, script: Sequence[Scripted]) -> None:
        super().__init__()
        self._script = list(script)
        self.requests: list[Received] = []

    def serve(self, handler: BaseHTTPRequestHandler, received: Received) -> None:
        """Answer with the next step of the script."""
        with self._lock:
            self.requests.append(received)
            answer = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        self._play(handler, answer)

    def _play(self, handler: BaseHTTPRequestHandler, answer: Scripted) -> None:
        self._closing.wait(answer.delay)
        handler.close_connection = answer.fault != "none"
        if answer.fault == "hang":
            self._closing.wait(30)
        elif answer.fault == "reset":
            linger = struct.pack("ii", 1, 0)  # a close with a zero linger time sends RST
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            handler.connection.close()
        elif answer.fault != "drop":
            _send(handler, answer)


def _send(handler: BaseHTTPRequestHandler, answer: Scripted) -> None:
    payload = answer.payload
    handler.send_response(answer.status)
    handler.send_header("content-type", answer.content_type)
    handler.send_header("content-length", str(len(payload)))
    for name, value in answer.headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    half = payload[: len(payload) // 2]
    handler.wfile.write(half if answer.fault == "half-body" else payload)
    handler.wfile.flush()


def loopback(*script: Scripted) -> LoopbackServer:
    """A server that plays `script`, for a `with` block."""
    return LoopbackServer(script or (Scripted(),))
