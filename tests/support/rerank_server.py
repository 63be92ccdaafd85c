"""A real HTTP server on the loopback interface that answers /rerank in the shapes of real servers.

    with RerankServer("tei", {"def paint": 0.9}) as server:
        run(PATCHSHOT_RERANK_BASE_URL=server.base_url)

A text scores what the longest phrase of `liked` in it says, else 0.1.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal

Shape = Literal["jina", "cohere", "voyage", "tei", "broken"]
_ROOTS = {"jina": "/v1", "cohere": "/v2", "voyage": "/v1", "tei": "", "broken": ""}


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    path: str
    key: str
    body: Mapping[str, Any]


class RerankServer:
    """The server, as a context manager. `asked` has every request. `longest`: characters of a text
    that it takes.
    """

    def __init__(
        self, shape: Shape, liked: Mapping[str, float] | None = None, *, longest: int = 1_000_000
    ) -> None:
        self.asked: list[Asked] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                key = self.headers.get("authorization", "").removeprefix("Bearer ")
                server.asked.append(Asked(self.path, key, body))
                status, reply = answer(shape, self.path, body, liked or {}, longest)
                data = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                return

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base_url = f"http://127.0.0.1:{self._http.server_port}{_ROOTS[shape]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> RerankServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def answer(
    shape: Shape, path: str, body: Mapping[str, Any], liked: Mapping[str, float], longest: int
) -> tuple[int, Any]:
    """Status and JSON of a reply."""
    if path != f"{_ROOTS[shape]}/rerank":
        return 404, {"detail": "Not Found"}
    if shape == "broken":
        return 503, {"error": "the model is not loaded"}
    texts = body.get("texts" if shape == "tei" else "documents")
    if texts is None:
        return 422, {"error": "missing field `texts`", "error_type": "Validation"}
    if shape == "tei" and len(texts) > 32:
        return 422, {"error": "batch size > maximum allowed batch size 32"}
    if max(map(len, texts)) > longest:
        return 400, {"error": {"message": "This model's maximum context length is 512 tokens"}}
    scores = [_score(text, liked) for text in texts]
    best_first = sorted(range(len(texts)), key=lambda n: -scores[n])
    if shape == "tei":
        return 200, [{"index": n, "score": scores[n]} for n in best_first]
    rows = [{"index": n, "relevance_score": scores[n]} for n in best_first]
    return 200, {"data": rows} if shape == "voyage" else {"results": rows, "id": "r"}


def _score(text: str, liked: Mapping[str, float]) -> float:
    found = sorted((phrase for phrase in liked if phrase in text), key=len)
    return liked[found[-1]] if found else 0.1
