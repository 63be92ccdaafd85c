"""Sockets of the host, for attacks to reach: any contact is written down."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox.types import RunResult
from tests.support.attack_traps import Setter, Trap, marker


@dataclass(frozen=True, slots=True)
class _Listener:
    """One socket on the host and what came to it."""

    where: str
    socket: socket.socket
    contacts: list[str]

    def serve(self, ended: threading.Event) -> None:
        self.socket.settimeout(0.05)
        stream = self.socket.type == socket.SOCK_STREAM
        while not ended.is_set():
            try:
                if stream:
                    self.socket.accept()[0].close()
                else:
                    self.socket.recv(512)
            except OSError:
                continue
            self.contacts.append(f"{self.where} was reached")


def listening(*kinds: str) -> Setter:
    """Sockets on the host, of the kinds of `_KINDS`; the attack gets their addresses as JSON."""

    @contextmanager
    def trap(folder: Path) -> Iterator[Trap]:
        ended = threading.Event()
        made = [_KINDS[kind](folder) for kind in kinds]
        listeners = [_Listener(f"{kind} {address}", sock, []) for kind, (sock, address)
                     in zip(kinds, made, strict=True)]  # fmt: skip
        threads = [threading.Thread(target=one.serve, args=(ended,)) for one in listeners]

        def evidence(_: RunResult) -> list[str]:
            time.sleep(0.15)
            return [contact for one in listeners for contact in one.contacts]

        for thread in threads:
            thread.start()
        try:
            yield Trap((json.dumps([address for _, address in made]),), evidence)
        finally:
            ended.set()
            for thread, one in zip(threads, listeners, strict=True):
                thread.join()
                one.socket.close()

    return trap


def _internet(kind: int, host: str) -> Callable[[Path], tuple[socket.socket, object]]:
    def make(_: Path) -> tuple[socket.socket, object]:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, kind)
        sock.bind((host, 0))
        if kind == socket.SOCK_STREAM:
            sock.listen()
        return sock, [_own_address() if host == "0.0.0.0" else host, sock.getsockname()[1]]

    return make


def _own_address() -> str:
    """An address of this machine beside the loopback, where it has one. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def _unix(folder: Path) -> tuple[socket.socket, object]:
    # Everybody may pass and write: the sandbox must be what stops the attack. sun_path is short.
    place = Path(f"/var/tmp/{marker()[:28]}.sock")
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(place))
    place.chmod(0o666)
    sock.listen()
    return _Unlinked(sock, place), str(place)


class _Unlinked(socket.socket):
    """A bound unix socket that takes its file along when it is closed."""

    def __init__(self, bound: socket.socket, place: Path) -> None:
        super().__init__(bound.family, bound.type, bound.proto, bound.detach())
        self._place = place

    def close(self) -> None:
        super().close()
        self._place.unlink(missing_ok=True)


def _abstract(_: Path) -> tuple[socket.socket, object]:
    sock = socket.socket(socket.AF_UNIX)
    name = marker()
    sock.bind(f"\0{name}")
    sock.listen()
    return sock, f"\0{name}"


def _vsock(_: Path) -> tuple[socket.socket, object]:
    sock = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
    sock.bind((socket.VMADDR_CID_ANY, socket.VMADDR_PORT_ANY))
    sock.listen()
    return sock, sock.getsockname()[1]


_KINDS: dict[str, Callable[[Path], tuple[socket.socket, object]]] = {
    "tcp": _internet(socket.SOCK_STREAM, "127.0.0.1"),
    "tcp6": _internet(socket.SOCK_STREAM, "::1"),
    "tcp-any": _internet(socket.SOCK_STREAM, "0.0.0.0"),
    "udp": _internet(socket.SOCK_DGRAM, "127.0.0.1"),
    "udp-any": _internet(socket.SOCK_DGRAM, "0.0.0.0"),
    "unix": _unix,
    "abstract": _abstract,
    "vsock": _vsock,
}
