"""Qdrant by URL where there is no server of it: its REST routes, answered by the library's engine.

A process of its own on the loopback interface (`python -m tests.support.qdrant_http`), so that it
can be killed and started again on its folder. Bodies are read by the library's own models, and what
the real server refuses is refused here: no key, bodies of more than 32 MiB, and, as its strict mode
does, filters by fields without an index. It shows that our side speaks the protocol. It cannot show
how the real server searches: the engine behind it is plain Python.

Each path in front of `/collections` is a server of its own, with data of its own. `PUT /faults`,
which Qdrant has not, has later requests answered badly; `GET /asked` lists all requests.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

MAX_BODY = 32 * 1024 * 1024
"""Bytes of a request that the real server takes by default."""


class Fault(BaseModel):
    """What happens to one later request, whose "METHOD /path" has `route` in it.

    `skip` such requests pass first. `status` 0: answered as ever, after the delay. `kill`: the
    process ends as by an out-of-memory killer, before or after the work, without an answer.
    """

    model_config = ConfigDict(extra="forbid")

    route: str = ""
    skip: int = 0
    status: int = 0
    body: str = ""
    content_type: str = "application/json"
    headers: dict[str, str] = {}
    delay: float = 0.0
    kill: Literal["", "before", "after"] = ""


class Refused(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Engine:
    """One server's data, and what it does with a request. One request at a time."""

    def __init__(self, folder: Path | None, version: str) -> None:
        from qdrant_client.local.qdrant_local import QdrantLocal

        place = ":memory:" if folder is None else str(folder)
        self._local = QdrantLocal(place, force_disable_check_same_thread=True)
        self._version = tuple(map(int, version.split(".")))
        self._kept = None if folder is None else folder / "indexes.json"
        self._indexes: dict[str, dict[str, str]] = {}
        if self._kept is not None and self._kept.exists():
            self._indexes = json.loads(self._kept.read_text())
        self._lock = threading.Lock()

    def answer(self, method: str, path: str, body: bytes) -> Any:
        """The `result` of the answer. Raises Refused."""
        for verb, pattern, act in _ROUTES:
            found = re.fullmatch(pattern, path)
            if verb == method and found:
                with self._lock:
                    return self._act(act, found, body)
        raise Refused(404, f"Unknown route: {method} {path}")

    def _act(self, act: Callable[..., Any], found: re.Match[str], body: bytes) -> Any:
        try:
            return act(self, *found.groups(), *((body,) if body else ()))
        except ValidationError as error:
            raise Refused(400, f"Format error in JSON body: {error}") from None
        except ValueError as error:
            text = str(error)
            status = 404 if "not found" in text else 409 if "already exists" in text else 400
            raise Refused(status, text) from None

    def list(self) -> Any:
        return self._local.get_collections()

    def exists(self, name: str) -> Any:
        return {"exists": self._local.collection_exists(name)}

    def create(self, name: str, body: bytes) -> bool:
        wanted = _read("CreateCollection", body)
        metadata = wanted.metadata if self._version >= (1, 16) else None
        self._local.create_collection(name, vectors_config=wanted.vectors, metadata=metadata)
        self._keep_indexes(name, {})
        return True

    def info(self, name: str) -> Any:
        found = self._local.get_collection(name)
        schema = {
            field: {"data_type": kind, "points": found.points_count}
            for field, kind in self._indexes.get(name, {}).items()
        }
        return {**found.model_dump(mode="json", exclude_none=True), "payload_schema": schema}

    def update(self, name: str, body: bytes) -> bool:
        wanted = _read("UpdateCollection", body)
        return self._local.update_collection(name, metadata=wanted.metadata)

    def drop(self, name: str) -> bool:
        self._keep_indexes(name, None)
        return self._local.delete_collection(name)

    def index(self, name: str, body: bytes) -> Any:
        self._local.get_collection(name)
        wanted = _read("CreateFieldIndex", body)
        own = {**self._indexes.get(name, {}), wanted.field_name: str(wanted.field_schema.value)}
        self._keep_indexes(name, own)
        return {"operation_id": 0, "status": "completed"}

    def upsert(self, name: str, body: bytes) -> Any:
        return self._local.upsert(name, _read("PointsList", body).points)

    def retrieve(self, name: str, body: bytes) -> Any:
        wanted = _read("PointRequest", body)
        return self._local.retrieve(
            name,
            wanted.ids,
            with_payload=True if wanted.with_payload is None else wanted.with_payload,
            with_vectors=wanted.with_vector or False,
        )

    def query(self, name: str, body: bytes) -> Any:
        wanted = _read("QueryRequest", body)
        return self._local.query_points(
            name,
            query=wanted.query,
            query_filter=self._checked(name, wanted.filter),
            limit=wanted.limit or 10,
            with_payload=wanted.with_payload or False,
            with_vectors=wanted.with_vector or False,
        )

    def scroll(self, name: str, body: bytes) -> Any:
        wanted = _read("ScrollRequest", body)
        points, following = self._local.scroll(
            name,
            self._checked(name, wanted.filter),
            limit=wanted.limit or 10,
            offset=wanted.offset,
            with_payload=True if wanted.with_payload is None else wanted.with_payload,
            with_vectors=wanted.with_vector or False,
        )
        return {"points": points, "next_page_offset": following}

    def count(self, name: str, body: bytes) -> Any:
        wanted = _read("CountRequest", body)
        return self._local.count(name, self._checked(name, wanted.filter))

    def delete(self, name: str, body: bytes) -> Any:
        wanted = _read("FilterSelector", body)
        self._checked(name, wanted.filter)
        return self._local.delete(name, wanted)

    def payload(self, name: str, body: bytes) -> Any:
        wanted = _read("SetPayload", body)
        return self._local.set_payload(name, wanted.payload, self._checked(name, wanted.filter))

    def _checked(self, name: str, chosen: Any) -> Any:
        """The filter. Refuses one that would look into every payload, as strict mode does."""
        for condition in (chosen.must or []) if chosen is not None else []:
            empty = getattr(condition, "is_empty", None)
            field = getattr(condition, "key", None) or (empty.key if empty else None)
            if field is not None and field not in self._indexes.get(name, {}):
                raise Refused(400, f'Bad request: Index required but not found for "{field}"')
        return chosen

    def _keep_indexes(self, name: str, fields: dict[str, str] | None) -> None:
        self._indexes.pop(name, None)
        if fields is not None:
            self._indexes[name] = fields
        if self._kept is not None:
            self._kept.write_text(json.dumps(self._indexes))


_NAME = "/collections/([^/]+)"
_ROUTES: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("GET", "/collections", Engine.list),
    ("GET", f"{_NAME}/exists", Engine.exists),
    ("GET", _NAME, Engine.info),
    ("PUT", _NAME, Engine.create),
    ("PATCH", _NAME, Engine.update),
    ("DELETE", _NAME, Engine.drop),
    ("PUT", f"{_NAME}/index", Engine.index),
    ("PUT", f"{_NAME}/points", Engine.upsert),
    ("POST", f"{_NAME}/points", Engine.retrieve),
    ("POST", f"{_NAME}/points/query", Engine.query),
    ("POST", f"{_NAME}/points/scroll", Engine.scroll),
    ("POST", f"{_NAME}/points/count", Engine.count),
    ("POST", f"{_NAME}/points/delete", Engine.delete),
    ("POST", f"{_NAME}/points/payload", Engine.payload),
)


def _read(model: str, body: bytes) -> Any:
    from qdrant_client.http import models

    return TypeAdapter(getattr(models, model)).validate_json(body)


class Server(ThreadingHTTPServer):
    """All servers of the process, by the path in front of theirs."""

    daemon_threads = True

    def __init__(self, port: int, folder: Path | None, key: str, version: str) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.key = key
        self.version = version
        self.asked: list[str] = []
        self._faults: list[Fault] = []
        self._folder = folder
        self._engines: dict[str, Engine] = {}
        self._lock = threading.Lock()

    def engine(self, prefix: str) -> Engine:
        with self._lock:
            if prefix not in self._engines:
                own = None if self._folder is None else self._folder / f"at{prefix or '-root'}"
                self._engines[prefix] = Engine(own, self.version)
            return self._engines[prefix]

    def plan(self, faults: list[Fault]) -> None:
        with self._lock:
            self._faults = faults

    def next_fault(self, asked: str) -> Fault:
        """What is to happen to this request."""
        with self._lock:
            self.asked.append(asked)
            for fault in self._faults:
                if fault.route not in asked:
                    continue
                if fault.skip == 0:
                    self._faults.remove(fault)
                    return fault
                fault.skip -= 1
                break
        return Fault()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def _answer(self) -> None:
        path = self.path.split("?", 1)[0]
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if path == "/faults":
            self.server.plan(TypeAdapter(list[Fault]).validate_json(body))
            self._send(200, b"null")
        elif path == "/asked":
            self._send(200, json.dumps(self.server.asked).encode())
        else:
            self._serve(path, body, self.server.next_fault(f"{self.command} {path}"))

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = _answer

    def _serve(self, path: str, body: bytes, fault: Fault) -> None:
        time.sleep(fault.delay)
        if fault.kill == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault.status:
            self._send(fault.status, fault.body.encode(), fault.content_type, fault.headers)
            return
        status, data = self._worked(path, body)
        if fault.kill == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        self._send(status, data)

    def _worked(self, path: str, body: bytes) -> tuple[int, bytes]:
        from pydantic_core import to_json

        try:
            if self.server.key and self.headers.get("api-key") != self.server.key:
                return 401, b"Must provide an API key or an Authorization bearer token"
            if len(body) > MAX_BODY:
                raise Refused(400, f"Payload error: {len(body)} bytes, limit: {MAX_BODY} bytes")
            prefix, mark, rest = path.partition("/collections")
            if not mark:
                about = {"title": "qdrant - vector search engine", "version": self.server.version}
                return 200, json.dumps(about).encode()
            result = self.server.engine(prefix).answer(self.command, mark + rest, body)
        except Refused as error:
            told = {"status": {"error": str(error)}, "time": 0.0}
            return error.status, json.dumps(told).encode()
        return 200, to_json({"result": result, "status": "ok", "time": 0.0}, exclude_none=True)

    def _send(
        self,
        status: int,
        data: bytes,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(data)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client has given up waiting

    def log_message(self, *_: object) -> None:
        """Nothing."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--key", default="")
    parser.add_argument("--version", default="1.16.0")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # the engine's, of what it is too small for
    server = Server(given.port, given.folder, given.key, given.version)
    print(server.server_port, flush=True)  # noqa: T201
    server.serve_forever(poll_interval=0.05)


if __name__ == "__main__":
    main()
