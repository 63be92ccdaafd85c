"""The fork server: a process that has loaded all modules and forks workers.

`agent.batch.local.worker_processes` starts it. A request on its control socket (standard input,
SOCK_SEQPACKET) is any message with three descriptors: a worker's input, output and log. The answer
is "started PID" with a descriptor of the process (pidfd), and later "died PID CODE" (negative for a
signal), when the worker and everything it started are dead. The server exits when its socket is
closed, and its workers live on.

A fork copies one thread only, but the locks of all, so the server may have no other thread.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import socket
import sys
import traceback
from contextlib import suppress
from pathlib import Path

from agent.batch import worker

_DESCRIPTORS = 3  # input, output, log
_LONGEST_MESSAGE = 64


def main() -> None:
    """Serve the control socket on standard input. Each child serves one job."""
    control = socket.socket(fileno=os.dup(0))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    worker.get_ready()
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208  (names are all that is wanted)
    if threads > 1:
        sys.exit(f"{threads} threads in the fork server: it cannot fork safely")
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page that it looks at
    ForkServer(control).serve()


class ForkServer:
    """Forks workers and reaps them."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, int] = {}  # process id by its descriptor
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)

    def serve(self) -> None:
        """Serve until the other end of the socket is closed. A child never returns from here."""
        while True:
            for key, _ in self._selector.select():
                if key.fd in self._children:
                    self._reap(key.fd)
                elif not self._listen():
                    return

    def _listen(self) -> bool:
        """Serve one request. Return False if there will be no other."""
        message, descriptors, _, _ = socket.recv_fds(self._control, _LONGEST_MESSAGE, _DESCRIPTORS)
        if len(descriptors) == _DESCRIPTORS:
            self._fork(descriptors)
        return bool(message)

    def _fork(self, descriptors: list[int]) -> None:
        ready, done = os.pipe()
        child = os.fork()
        if not child:
            os.close(ready)
            self._become_worker(descriptors)
            os.close(done)
            _serve_and_exit()
        os.close(done)
        os.read(ready, 1)  # wait until it leads its session, which the engine may then kill
        os.close(ready)
        for descriptor in descriptors:
            os.close(descriptor)
        handle = os.pidfd_open(child)
        self._children[handle] = child
        self._selector.register(handle, selectors.EVENT_READ)
        with suppress(OSError):  # the engine is gone: the next `recv` ends the server
            socket.send_fds(self._control, [b"started %d" % child], [handle])

    def _become_worker(self, descriptors: list[int]) -> None:
        """In the child: start a session, take the descriptors, and close those of the server."""
        os.setsid()
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
            os.close(descriptor)
        self._selector.close()
        self._control.close()
        for handle in self._children:
            os.close(handle)

    def _reap(self, handle: int) -> None:
        """Kill the session of a dead worker before its process id is free again."""
        child = self._children.pop(handle)
        self._selector.unregister(handle)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.close(handle)
        with suppress(OSError):
            self._control.send(b"died %d %d" % (child, code))


def _serve_and_exit() -> None:
    """Serve one job and exit at once: tearing down all loaded modules would take long."""
    code = 1
    try:
        worker.serve()
        code = 0
    except BaseException:  # noqa: BLE001  (the last line of a process)
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
