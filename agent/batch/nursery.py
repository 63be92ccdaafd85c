"""The nursery: a process that has loaded what every job needs, and becomes a worker by forking.

Started by `agent.batch.hatchery`. A request on its control socket (standard input, SOCK_SEQPACKET)
is any message with three descriptors: a worker's input, output and log. It answers "born PID", with
a descriptor of the process (pidfd), and later "died PID CODE" (negative for a signal), once
whatever the worker has started is dead too. It ends with its socket and leaves workers as they are.

A fork copies one thread alone, with the locks that others hold: none may live here.
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
    """Serve standard input, an open control socket; in each child, one job."""
    control = socket.socket(fileno=os.dup(0))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    worker.get_ready()
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208  (names are all that is wanted)
    if threads > 1:
        sys.exit(f"{threads} threads live in the nursery: nothing may be forked from it")
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page that it looks at
    Nursery(control).serve()


class Nursery:
    """Forks workers and buries them."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, int] = {}  # process id by its descriptor
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)

    def serve(self) -> None:
        """Until the other end of the socket is closed. A child does not come back from here."""
        while True:
            for key, _ in self._selector.select():
                if key.fd in self._children:
                    self._bury(key.fd)
                elif not self._listen():
                    return

    def _listen(self) -> bool:
        """Take one request; whether there may be another."""
        message, descriptors, _, _ = socket.recv_fds(self._control, _LONGEST_MESSAGE, _DESCRIPTORS)
        if len(descriptors) == _DESCRIPTORS:
            self._hatch(descriptors)
        return bool(message)

    def _hatch(self, descriptors: list[int]) -> None:
        ready, done = os.pipe()
        child = os.fork()
        if not child:
            os.close(ready)
            self._leave(descriptors)
            os.close(done)
            _live()
        os.close(done)
        os.read(ready, 1)  # until it leads its session: who hears of its birth may kill that
        os.close(ready)
        for descriptor in descriptors:
            os.close(descriptor)
        handle = os.pidfd_open(child)
        self._children[handle] = child
        self._selector.register(handle, selectors.EVENT_READ)
        with suppress(OSError):  # nobody listens: the next `recv` ends it
            socket.send_fds(self._control, [b"born %d" % child], [handle])

    def _leave(self, descriptors: list[int]) -> None:
        """In the child: keep nothing of the nursery, and take its own place."""
        os.setsid()
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
            os.close(descriptor)
        self._selector.close()
        self._control.close()
        for handle in self._children:
            os.close(handle)

    def _bury(self, handle: int) -> None:
        """What a worker has started ends with it: its session, before its id is free again."""
        child = self._children.pop(handle)
        self._selector.unregister(handle)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.close(handle)
        with suppress(OSError):
            self._control.send(b"died %d %d" % (child, code))


def _live() -> None:
    """A child's whole life. It ends at once: tearing down all that was loaded takes long."""
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
