"""Qdrant's REST routes on the loopback interface, answered by the engine of its library.

It refuses what the real server refuses: a wrong key, and filters by fields without an index (its
strict mode). It shows that our side speaks the protocol, not how the real server searches. Each
path before `/collections` is a server with data of its own.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from tests.support.stores import require


@dataclass
class Fault:
    """How the next request whose "METHOD /path" has `route` in it is answered.

    `cut`: the connection ends before or after the work, without an answer, as when it is killed.
    """

    status: int = 0
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    route: str = ""
    cut: Literal["", "before", "after"] = ""


class Refused(Exception):
    """An answer other than 200."""


class Engine:
    """The data of one server."""

    def __init__(self, *, keeps_metadata: bool) -> None:
        from qdrant_client.local.qdrant_local import QdrantLocal

        self._local = QdrantLocal(":memory:", force_disable_check_same_thread=True)
        self._keeps_metadata = keeps_metadata
        self._indexes: dict[str, dict[str, str]] = {}

    def answer(self, method: str, path: str, body: bytes) -> Any:
        """Return the `result` of the answer. Raises Refused, and the errors of the engine."""
        _, _, name, *rest = (*path.split("/"), "")
        route = (method, *filter(None, rest))
        if not name:
            return self._local.get_collections()
        read = {
            ("PUT",): "CreateCollection",
            ("PUT", "index"): "CreateFieldIndex",
            ("PUT", "points"): "PointsList",
            ("POST", "points"): "PointRequest",
            ("POST", "points", "query"): "QueryRequest",
            ("POST", "points", "count"): "CountRequest",
            ("POST", "points", "delete"): "FilterSelector",
        }
        request = _read(read[route], body) if route in read else None
        self._check(name, getattr(request, "filter", None))
        match route:
            case ("GET",):
                info = self._local.get_collection(name).model_dump(mode="json", exclude_none=True)
                return {**info, "payload_schema": self._indexes.get(name, {})}
            case ("DELETE",):
                return self._local.delete_collection(name)
            case ("PUT",):
                metadata = request.metadata if self._keeps_metadata else None
                self._indexes[name] = {}
                return self._local.create_collection(name, request.vectors, metadata=metadata)
            case ("PUT", "index"):
                index = {"data_type": str(request.field_schema.value), "points": 0}
                self._indexes.setdefault(name, {})[request.field_name] = index  # type: ignore[assignment]
                return {"operation_id": 0, "status": "completed"}
            case ("PUT", "points"):
                return self._local.upsert(name, request.points)
            case ("POST", "points"):
                return self._local.retrieve(name, request.ids)
            case ("POST", "points", "query"):
                return self._local.query_points(
                    name,
                    query=request.query,
                    query_filter=request.filter,
                    limit=request.limit,
                    with_payload=request.with_payload,
                    with_vectors=request.with_vector,
                )
            case ("POST", "points", "count"):
                return self._local.count(name, request.filter)
            case ("POST", "points", "delete"):
                return self._local.delete(name, request)
        raise Refused(f"unknown route: {method} {path}")

    def _check(self, name: str, chosen: Any) -> None:
        for condition in (chosen.must or []) if chosen is not None else []:
            key = getattr(condition, "key", None)
            if key is not None and key not in self._indexes.get(name, {}):
                raise Refused(f'Index required but not found for "{key}"')


def _read(model: str, body: bytes) -> Any:
    from pydantic import TypeAdapter
    from qdrant_client.http import models

    return TypeAdapter(getattr(models, model)).validate_json(body)


class QdrantServer(ThreadingHTTPServer):
    """All servers of one port; `requests` has "METHOD /path" of each request."""

    daemon_threads = True

    def __init__(self, key: str, *, keeps_metadata: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.key = key
        self.requests: list[str] = []
        self.faults: list[Fault] = []
        self._keeps_metadata = keeps_metadata
        self._engines: dict[str, Engine] = {}
        self._lock = threading.Lock()

    def new_url(self) -> str:
        """Return the address of a server without data."""
        return f"qdrant://127.0.0.1:{self.server_port}/{len(self._engines) + 1}"

    def next_fault(self, request: str) -> Fault:
        self.requests.append(request)
        fault = next((one for one in self.faults if one.route in request), None)
        if fault is None:
            return Fault()
        self.faults.remove(fault)
        return fault

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        from pydantic_core import to_json

        prefix, mark, rest = path.partition("/collections")
        try:
            with self._lock, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the engine's, of what it is too small for
                if prefix not in self._engines:
                    self._engines[prefix] = Engine(keeps_metadata=self._keeps_metadata)
                result = self._engines[prefix].answer(method, mark + rest, body)
        except (Refused, ValueError) as error:
            return 400, json.dumps({"status": {"error": str(error)}}).encode()
        return 200, to_json({"result": result, "status": "ok", "time": 0.0}, exclude_none=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: QdrantServer

    def _answer(self) -> None:
        path = re.sub(r"\?.*", "", self.path)
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        fault = self.server.next_fault(f"{self.command} {path}")
        status, data = fault.status, fault.body.encode()
        if self.server.key and self.headers.get("api-key") != self.server.key:
            status, data = 401, b"Must provide an API key"
        if not status and fault.cut != "before":
            status, data = self.server.answer(self.command, path, body)
        if fault.cut:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **fault.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = _answer

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def qdrant_server(key: str = "", *, keeps_metadata: bool = True) -> Iterator[QdrantServer]:
    """Run a server. One before 1.16 keeps no metadata of collections."""
    require("qdrant_client")
    server = QdrantServer(key, keeps_metadata=keeps_metadata)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
