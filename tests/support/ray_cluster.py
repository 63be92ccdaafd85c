"""A real Ray cluster of two nodes on the loopback interface, and the end of a node by `kill -9`."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.conftest import ROOT

_SECONDS = 180.0  # starting a node on a busy machine
_MARK = "CLUSTER_MARK"  # in the environment of everything that a node has started


class RayNode:
    """The processes of one node: what has its mark in its environment."""

    def __init__(self, folder: Path, environment: Mapping[str, str], cores: int) -> None:
        self.folder = folder
        self.mark = secrets.token_hex(8)
        self._environment = {**environment, _MARK: self.mark}
        self._cores = cores

    def start(self, *arguments: str, prefix: tuple[str, ...] = ()) -> None:
        """Start it, and wait until it is part of the cluster."""
        self.folder.mkdir()
        ray = Path(sys.executable).with_name("ray")
        common = ("--disable-usage-stats", "--object-store-memory=100000000")
        done = subprocess.run(
            [
                *(*prefix, str(ray), "start", *arguments, *common),
                *(f"--num-cpus={self._cores}", f"--temp-dir={self.folder}"),
            ],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode:
            raise RuntimeError((done.stdout + done.stderr).decode()[-2000:])

    def processes(self) -> Iterator[int]:
        """What lives of it: what has its mark, and what that has started (Ray renames some)."""
        wanted = f"{_MARK}={self.mark}".encode()
        parents: dict[int, int] = {}
        found = set()
        for path in Path("/proc").glob("[0-9]*"):
            try:
                state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
                environment = (path / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if state != "Z":
                parents[int(path.name)] = int(parent)
                if wanted in environment:
                    found.add(int(path.name))
        while more := {one for one, parent in parents.items() if parent in found} - found:
            found |= more
        yield from sorted(found)

    def kill(self) -> None:
        """SIGKILL for all of it, as when the machine is switched off."""
        deadline = time.monotonic() + 30.0
        while found := list(self.processes()):
            assert time.monotonic() < deadline, found
            for process in found:
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.05)

    def jobs(self) -> int:
        """Return the number of Patchshot's processes on it: fork servers and workers."""
        count = 0
        for process in self.processes():
            try:
                line = Path(f"/proc/{process}/cmdline").read_bytes()
            except OSError:
                continue
            count += b"agent.batch" in line
        return count


class RayCluster:
    """A head node and another one, as a context manager; token authentication.

    `environment` is what a driver needs to join `address`. `mounts`: arguments of bubblewrap that
    make the second node see another file system, as on another machine. `cores`: what each node
    says that it has. `settings`: variables that both nodes have of their own.
    """

    def __init__(
        self, *mounts: str, cores: int = 2, settings: Mapping[str, str] | None = None
    ) -> None:
        # A socket's path has at most 107 bytes, and Ray appends some 70.
        self._folder = Path(tempfile.mkdtemp(prefix="r"))
        self._prefix = ("bwrap", "--dev-bind", "/", "/", *mounts) if mounts else ()
        self.environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_worker_niceness": "0",  # else what runs beside the tests would starve them
        }
        base = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **self.environment}
        base |= settings or {}
        self.head, self.second = (
            RayNode(
                self._folder / name,
                {**base, "HOME": str(self._folder / name), "TMPDIR": str(self._folder)},
                cores,
            )
            for name in "ab"
        )
        self.address = f"127.0.0.2:{_free_port('127.0.0.2')}"

    def __enter__(self) -> Self:
        try:
            port = self.address.partition(":")[2]
            self.head.start(
                "--head", "--node-ip-address=127.0.0.2", f"--port={port}",
                "--include-dashboard=false",
            )  # fmt: skip
            self.second.start(
                f"--address={self.address}", "--node-ip-address=127.0.0.3", prefix=self._prefix
            )
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        self.second.kill()
        self.head.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
