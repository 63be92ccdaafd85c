"""Has a replay (`patchshot_plain`) run in the surroundings of a user, and not of a test run.

It runs inside the sandbox under Python 3.7 or later, with the standard library only.
"""

# ruff: noqa: PTH102, PTH103, PTH109, PTH118, PTH208, PTH211
# (pathlib would be imported, and the functions of `os` are what this module replaces)

from __future__ import annotations

import contextlib
import datetime
import importlib.machinery
import os
import re
import resource
import socket
import sys
import tempfile
import threading
import time
import types
from typing import Any

from patchshot_rewrite import ended  # type: ignore[import-not-found]  # beside this file, inside

LATER = 10 * 365 * 86_400  # seconds by which the clock is moved
USER = {"USER": "dev", "LOGNAME": "dev", "LANG": "C.UTF-8", "TERM": "xterm", "TZ": "EST5"}
RUNNERS = ("pytest", "_pytest", "pluggy", "unittest")
# What is on every Linux machine, and not in the sandbox.
MACHINE = {
    *("/home", "/root", "/boot", "/mnt", "/media", "/opt", "/srv", "/sys", "/run", "/var/lib"),
    *("/var/log", "/var/cache", "/etc/hosts", "/etc/passwd", "/etc/os-release"),
    *("/sys/class/net", "/sys/class/net/eth0"),
}
SHIFT = [LATER]  # by how many seconds the clock is moved
HIDDEN = [True]  # whether test runners are not installed
READ = open  # before code of the target can replace it
_TIME = time.time


def configured_paths(folder: str) -> list[str]:
    """Return the folders that pytest's configuration in a folder puts on the import path."""
    value = configured(folder, r"pythonpath\s*=\s*(\[[^\]]*\]|.*(?:\n[ \t]+\S.*)*)")
    words = re.findall(r"[^\s\"',\[\]]+", value)
    return [os.path.normpath(os.path.join(folder, word)) for word in words]


def configured(folder: str, pattern: str) -> str:
    """Return what configuration in a folder has first in a line that begins with a pattern."""
    for name in ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg"):
        with contextlib.suppress(OSError):
            with READ(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                match = re.search("^" + pattern, file.read(), re.MULTILINE)
            if match:
                return match.group(1)
    return ""


def hide_runners() -> None:
    """Have imports find no test runner while it is `HIDDEN`."""
    finder: Any = importlib.machinery.PathFinder
    find = finder.find_spec

    def find_spec(cls: Any, name: str, *rest: Any) -> Any:
        hides = HIDDEN[0] and name.split(".")[0] in RUNNERS[:3]
        return None if hides else find(name, *rest)

    finder.find_spec = classmethod(find_spec)


def in_thread(work: Any) -> Any:
    """Return or raise what a function does in another thread."""
    ends: list[Any] = []
    thread = threading.Thread(target=lambda: ends.append(ended(work, (), {})))
    thread.start()
    thread.join()
    if isinstance(ends[0], BaseException):
        raise ends[0]
    return ends[0]


def of_a_module(code: Any) -> Any:
    """Return code whose inner functions have the names of functions of a module (Python 3.11)."""
    if not hasattr(code, "co_qualname"):
        return code
    consts = [
        of_a_module(one) if isinstance(one, types.CodeType) else one for one in code.co_consts
    ]
    name = "pick" if code.co_name == "<lambda>" else code.co_name
    whole = name if "<locals>" in code.co_qualname else code.co_qualname
    return code.replace(co_consts=tuple(consts), co_name=name, co_qualname=whole)


def installed(places: Any, without: Any) -> str:
    """Return a folder of packages with links to what is in these places, and metadata."""
    site = os.path.join(os.environ["HOME"], "lib", "python3", "site-packages")
    os.makedirs(site)
    for place in places:
        for name in sorted(set(os.listdir(place)).difference(without, os.listdir(site))):
            if name[0] != ".":
                os.symlink(os.path.join(place, name), os.path.join(site, name))
    name = configured(os.getcwd(), r"""name\s*=\s*["']?([\w.-]+)""") or "target"
    about = os.path.join(site, re.sub("[-.]+", "_", name) + "-1.0.dist-info")
    os.mkdir(about)
    with READ(os.path.join(about, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0\n")
    return site


def elsewhere(folder: str, without: Any = ()) -> str:
    """Return another folder with links to what is in this one, in the user's home."""
    other = tempfile.mkdtemp(prefix="work-", dir=os.environ["HOME"])
    for name in set(os.listdir(folder)).difference(without):
        os.symlink(os.path.join(folder, name), os.path.join(other, name))
    return other


def move(root: str) -> None:
    """Have the process look like a user's.

    The environment, the arguments, the terminal, the process number, the network and the clock
    change; `Replay` changes the names of test, class and file, the folders and the thread.
    """
    home = tempfile.mkdtemp(prefix=".dev-", dir=root)
    READ(os.path.join(home, "notes.txt"), "w").close()
    os.environ.clear()
    os.environ.update(USER, HOME=home, PATH=os.defpath, SHELL="/bin/sh")
    sys.argv[:], sys.dont_write_bytecode = ["shell"], False
    flags = {name: getattr(sys.flags, name) for name in dir(sys.flags) if name[0] != "_"}
    sys.flags = types.SimpleNamespace(**dict(flags, dont_write_bytecode=0))  # type: ignore[assignment]
    time.tzset()
    _terminal()
    _outside_exists()
    _move_clock()
    names = [(1, "lo"), (2, "eth0"), (3, "wlan0")]
    socket.if_nameindex = lambda: names
    socket.socket.connect = lambda self, address: None  # type: ignore[method-assign]
    socket.gethostbyname = lambda name: "192.0.2.1"
    socket.gethostname = lambda: "workstation"
    machine = os.uname()
    os.uname = lambda: os.uname_result((machine[0], "workstation", *machine[2:]))
    resource.getrlimit = lambda which: (resource.RLIM_INFINITY,) * 2
    os.getpid = lambda: 48_211
    os.getppid = lambda: 2_105


def _terminal() -> None:
    try:
        master, slave = os.openpty()
        os.write(master, b"\x04" * 64)
        os.dup2(slave, 0)
        sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)  # type: ignore[misc]
    except OSError:
        return
    for stream in (sys.stdout, sys.stderr):
        stream.isatty = lambda: True  # type: ignore[method-assign]


def _move_clock() -> None:
    local, utc, text = time.localtime, time.gmtime, time.strftime
    for name in ("time", "monotonic", "perf_counter", "process_time"):
        setattr(time, name, _later(getattr(time, name), 1))
    now, time.time_ns = time.time, _later(time.time_ns, 10**9)
    time.localtime = lambda at=None: local(now() if at is None else at)
    time.gmtime = lambda at=None: utc(now() if at is None else at)
    time.strftime = lambda form, at=None: text(form, local(now()) if at is None else at)
    for real, names in (
        (datetime.datetime, ("now", "utcnow", "today")),
        (datetime.date, ("today",)),
    ):
        setattr(datetime, real.__name__, _moved_type(real, names))


def _later(clock: Any, unit: int) -> Any:
    return lambda: clock() + SHIFT[0] * unit


def _moved_type(real: Any, names: Any) -> Any:
    """Return a type whose class methods give a later time; its instances are those of `real`."""

    def make(cls: Any, *values: Any, **named: Any) -> Any:
        return real.__new__(real if cls is moved else cls, *values, **named)

    def reading(name: str) -> Any:
        now = getattr(real, name)
        return staticmethod(lambda *zone: now(*zone) + datetime.timedelta(seconds=SHIFT[0]))

    checks = {
        "__instancecheck__": lambda cls, value: isinstance(value, real),
        "__subclasscheck__": lambda cls, kind: issubclass(kind, real),
    }
    meta = type("Meta", (type,), checks)
    methods = {"__new__": make, **{name: reading(name) for name in names}}
    moved: Any = meta(real.__name__, (real,), methods)
    return moved


def _outside_exists() -> None:
    """Have the folders of every machine exist, new files be as new as the clock, and others old."""
    real, began = os.stat, _TIME()

    def stat(path: Any, *rest: Any, **named: Any) -> Any:
        if isinstance(path, (str, bytes, os.PathLike)) and os.fsdecode(path).rstrip("/") in MACHINE:
            return real("/")
        found = real(path, *rest, **named)
        is_new = found.st_mtime >= began and ".pyc" not in str(path)
        later = SHIFT[0] if is_new else -SHIFT[0]
        moved = {
            "st_mtime": found.st_mtime + later,
            "st_mtime_ns": found.st_mtime_ns + later * 10**9,
        }
        return os.stat_result(tuple(found), moved)

    os.stat = stat
