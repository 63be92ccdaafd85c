"""Qdrant's REST routes on the loopback interface, answered by the engine of its library.

It refuses what the real server refuses: a wrong key, and filters by fields without an index (its
strict mode). It shows that our side speaks the protocol, not how the real server searches. Each
path before `/collections` is a server with data of its own.
"""

from __future__ import annotations

import warnings
from typing import Any

from tests.support.loopback import HttpServer, Received, Scripted
from tests.support.stores import require


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


class QdrantServer(HttpServer):
    """All servers of one port. One before 1.16 keeps no metadata of collections.

    `faults`: what the next requests are answered with.
    """

    def __init__(self, key: str = "", *, keeps_metadata: bool = True) -> None:
        require("qdrant_client")
        super().__init__()
        self.key = key
        self.faults: list[Scripted] = []
        self._keeps_metadata = keeps_metadata
        self._engines: dict[str, Engine] = {}

    def new_url(self) -> str:
        """Return the address of a server without data."""
        return f"qdrant://{self.address}/{len(self._engines) + 1}"

    def answer(self, request: Received) -> Scripted:
        from pydantic_core import to_json

        if self.faults:
            return self.faults.pop(0)
        if self.key and request.headers.get("api-key") != self.key:
            return Scripted("Must provide an API key", 401)
        path = request.target.partition("?")[0]
        prefix, mark, rest = path.partition("/collections")
        try:
            with self.lock, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the engine's, of what it is too small for
                if prefix not in self._engines:
                    self._engines[prefix] = Engine(keeps_metadata=self._keeps_metadata)
                result = self._engines[prefix].answer(request.method, mark + rest, request.body)
        except (Refused, ValueError) as error:
            return Scripted({"status": {"error": str(error)}}, 400)
        return Scripted(to_json({"result": result, "status": "ok", "time": 0.0}, exclude_none=True))
