"""A loopback server with real sockets that speaks every protocol and has every fault.

    with FaultServer(plan=once(Fault.SERVER_ERROR)) as server:
        ask(f"{server.url}/v1")
    assert len(server.requests) == 2

One asyncio server in a thread of its own. `plan` says which fault each call meets, by its number in
order of arrival, from 0; so the same plan gives the same faults. Lists and usage meet none.
"""

from __future__ import annotations

import asyncio
import enum
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tests.support.faults_dialects import (
    Dialect,
    Generation,
    Refused,
    dialect_of,
    lists_of,
    texts_of,
    tokens_of,
    vectors_of,
)

_HTML = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
_GARBAGE = b"\x00\xff\xfe{]not json at all \xf0\x9f"
_DRIP = 0.2  # seconds between two bytes
_LATE = 0.3  # seconds


class Fault(enum.StrEnum):
    """What goes wrong with one request."""

    NONE = "none"
    LATENCY = "latency"  # a moment late
    RATE_LIMIT = "429"
    RATE_LIMIT_WAIT = "429-retry-after"
    SERVER_ERROR = "500"
    GATEWAY = "html-502"
    HALF_BODY = "half-body"  # announces the whole and sends half
    GARBAGE = "garbage"  # 200 with bytes that are no JSON
    NO_BODY = "no-body"  # 200 with an empty body
    DRIP = "slow-drip"  # a byte at a time
    DROP = "drop"  # closes before a status line
    RESET = "reset"  # resets the connection
    ERROR_IN_200 = "error-in-200"
    WRONG_DIMENSION = "wrong-dimension"  # of embeddings


# What a client is to survive by trying again, without any help.
PASSING = tuple(
    fault for fault in Fault if fault not in (Fault.NONE, Fault.DRIP, Fault.WRONG_DIMENSION)
)

Plan = Callable[[int], Fault]


def never(_: int) -> Fault:
    """No faults."""
    return Fault.NONE


def always(fault: Fault) -> Plan:
    """The same fault again and again."""
    return lambda _: fault


def once(fault: Fault, *, at: int = 0, times: int = 1) -> Plan:
    """A burst that begins at one call."""
    return lambda number: fault if at <= number < at + times else Fault.NONE


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it arrived, and the fault it met."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    fault: Fault


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] | None = None

    def head(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status} X", f"content-type: {self.content_type}"]
        lines += [f"content-length: {len(self.body)}"]
        lines += [f"{name}: {value}" for name, value in (self.headers or {}).items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


class FaultServer:
    """The server, as a context manager.

    `reply` makes the text of a completion from the request's body. A text of more than `longest`
    characters is too long to be embedded, a prompt of more than `window` tokens too long for the
    model. `keys`: requests without the right key are refused with 401. Paths under `missing` are
    not there.
    """

    def __init__(
        self,
        plan: Plan = never,
        *,
        reply: Callable[[Mapping[str, Any]], str] = lambda _: "ready",
        longest: int | None = None,
        window: int | None = None,
        generation: Generation = "p3",
        tls: ssl.SSLContext | None = None,
        keys: bool = True,
        missing: tuple[str, ...] = (),
    ) -> None:
        self._plan = plan
        self._reply = reply
        self._longest = longest
        self._window = window
        self._generation: Generation = generation
        self._tls = tls
        self._keys = keys
        self._missing = missing
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._port = 0
        self.requests: list[Asked] = []
        self.calls = 0  # on paths that are there
        self.faults = 0

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`, or `https://localhost:PORT`."""
        if self._tls is not None:
            return f"https://localhost:{self._port}"
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> FaultServer:
        self._thread.start()
        if not self._ready.wait(10):
            raise TimeoutError("the fault server did not start")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout=10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        tasks: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                while await self._one(reader, writer):
                    pass
            except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass  # the client is gone, or the server is
            finally:
                tasks.discard(task)
                writer.transport.abort()

        server = await asyncio.start_server(
            connected, "127.0.0.1", 0, ssl=self._tls, limit=1 << 24, backlog=512
        )
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read one request and answer it; False when the connection ends with it."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        pairs = (line.partition(":") for line in head[1:] if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        content = await reader.readexactly(int(headers.get("content-length", 0)))
        path = target.split("?", 1)[0]
        fault = self._met(method, path)
        body = json.loads(content) if content else {}
        self.requests.append(Asked(method, path, headers, body, fault))
        await asyncio.sleep(_LATE if fault is Fault.LATENCY else 0.0)
        return await self._answer(writer, self._made(method, path, headers, body, fault), fault)

    def _met(self, method: str, path: str) -> Fault:
        """The fault of this request, by its number among the calls."""
        if method != "POST" or self._dialect(path) is None:
            return Fault.NONE
        fault = self._plan(self.calls)
        self.calls += 1
        self.faults += fault is not Fault.NONE
        return fault

    def _dialect(self, path: str) -> Dialect | None:
        missing = path.startswith(self._missing or "\0")
        return None if missing else dialect_of(path, self._generation)

    def _made(
        self, method: str, path: str, headers: Mapping[str, str], body: Any, fault: Fault
    ) -> _Reply:
        """The reply in the protocol of the path, as the fault would have it."""
        dialect = self._dialect(path)
        if dialect is None or method != "POST":
            there = method == "GET" and not path.startswith(self._missing or "\0")
            found = lists_of(path) if there else None
            return _json(200, found) if found is not None else _json(404, {"detail": "Not Found"})
        if self._keys and not dialect.allowed(headers):
            return _json(401, dialect.refusal(401, "Incorrect API key provided."))
        try:
            return _faulty(fault, dialect) or self._good(dialect, path, body, fault)
        except Refused as refused:
            return _json(refused.status, dialect.refusal(refused.status, refused.message))

    def _good(self, dialect: Dialect, path: str, body: Any, fault: Fault) -> _Reply:
        if path.endswith(("/embeddings", "/embedding")):
            texts = texts_of(body)
            if self._longest is not None and max(map(len, texts)) > self._longest:
                return _json(*dialect.too_long())
            vectors = vectors_of(texts, wrong=fault is Fault.WRONG_DIMENSION)
            return _json(200, dialect.embed(body, vectors))
        if self._window is not None and (counted := tokens_of(body)) > self._window:
            return _json(*dialect.beyond(self._window, counted))
        return _json(200, dialect.chat(body, self._reply(body)))

    async def _answer(self, writer: asyncio.StreamWriter, reply: _Reply, fault: Fault) -> bool:
        if fault is Fault.DROP:
            return False
        if fault is Fault.RESET:
            raw = writer.get_extra_info("socket")
            linger = struct.pack("ii", 1, 0)  # a close with a zero linger time sends RST
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            return False
        writer.write(reply.head())
        if fault is Fault.HALF_BODY:
            writer.write(reply.body[: len(reply.body) // 2])
            await writer.drain()
            return False
        if fault is Fault.DRIP:
            for byte in reply.body:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(_DRIP)
            return True
        writer.write(reply.body)
        await writer.drain()
        return True


def _faulty(fault: Fault, dialect: Dialect) -> _Reply | None:
    """The reply of a fault that has one of its own."""
    match fault:
        case Fault.RATE_LIMIT:
            return _json(429, dialect.refusal(429, "Too many requests"))
        case Fault.RATE_LIMIT_WAIT:
            body = dialect.refusal(429, "Too many requests")
            return _json(429, body, {"retry-after": "0.05"})
        case Fault.SERVER_ERROR:
            return _json(500, dialect.refusal(500, "Internal Server Error"))
        case Fault.GATEWAY:
            return _Reply(502, _HTML, "text/html")
        case Fault.GARBAGE:
            return _Reply(200, _GARBAGE)
        case Fault.NO_BODY:
            return _Reply(200, b"")
        case Fault.ERROR_IN_200:
            return _json(200, dialect.error_in_200())
    return None


def _json(status: int, value: Any, headers: Mapping[str, str] | None = None) -> _Reply:
    return _Reply(status, json.dumps(value).encode(), headers=headers)
