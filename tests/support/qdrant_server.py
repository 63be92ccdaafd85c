"""The stand-in for Qdrant's server (see `qdrant_http`), seen from a test: start, kill, ask, break.

with qdrant_server(folder, key="secret") as server:
    open_store(f"qdrant://:secret@127.0.0.1:{server.port}", ...)
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.qdrant_http import Fault
from tests.support.stores import require

ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 60.0  # a machine under load starts Python slowly


class QdrantServer:
    """The process, seen from a test. `port` stays the same when it is started again."""

    def __init__(self, folder: Path | None, key: str, version: str) -> None:
        self._options = ["--key", key, "--version", version]
        if folder is not None:
            self._options += ["--folder", str(folder)]
        self.port = 0
        self._made = 0
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        """Start it, or start it again; returns when it answers."""
        command = [sys.executable, "-m", "tests.support.qdrant_http", *self._options]
        self._process = subprocess.Popen(
            [*command, "--port", str(self.port)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        assert self._process is not None
        self._process.kill()
        self.wait()

    def wait(self) -> None:
        """Wait until the process has ended."""
        assert self._process is not None
        self._process.wait(_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def new_url(self) -> str:
        """Of a server that has nothing yet."""
        self._made += 1
        return f"qdrant://127.0.0.1:{self.port}/{self._made}"

    def fail(self, *faults: Fault) -> None:
        """Have these happen to later requests, each once, in this order where several fit."""
        self._ask("PUT", "/faults", [fault.model_dump() for fault in faults])

    def asked(self) -> list[str]:
        """ "METHOD /path" of all requests since it was started, refused ones too."""
        found: list[str] = self._ask("GET", "/asked", None)
        return found

    def _ask(self, method: str, path: str, body: Any) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), method=method
        )
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            return json.load(answer)


@contextmanager
def qdrant_server(
    folder: Path | None = None, *, key: str = "", version: str = "1.16.0"
) -> Iterator[QdrantServer]:
    """A running server; `folder` None: what it holds ends with it."""
    require("qdrant_client")
    server = QdrantServer(folder, key, version)
    try:
        yield server
    finally:
        server.kill()
