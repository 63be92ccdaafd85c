"""Cuts groups of files into encoded blocks, many groups in several processes.

A process is this module: a JSON array of groups comes in, a base64 line for each block goes out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from itertools import islice
from pathlib import Path

from agent.retrieval.index.contents import BlockBuilder, PieceEncoder
from agent.retrieval.index.corpus import encode

_FEWEST = 16  # groups; below, starting processes (0.3 s each) costs more than it saves
_MOST = 32  # groups that one process cuts
_SECONDS = 300.0  # a process that takes a hundred times longer than usual hangs

Group = Sequence[tuple[str, str]]
"""The files of one block, each a language and a text."""


def cut(
    groups: Iterable[Group], count: int, encoder: PieceEncoder | None
) -> Generator[bytes, None, None]:
    """Yield the blocks of `count` groups in their order."""
    processes = min(os.cpu_count() or 1, -(-count // _FEWEST))
    if processes < 2 or not sys.executable:
        yield from _cut_here(groups, encoder)
        return
    rounds = -(-count // (processes * _MOST))
    size, left = -(-count // (processes * rounds)), iter(groups)  # all processes end together
    running: deque[Future[list[bytes]]] = deque()
    pool = ThreadPoolExecutor(processes, thread_name_prefix="index")
    try:
        while batch := list(islice(left, size)):
            running.append(pool.submit(_cut_in_process, batch, encoder))
            if len(running) > processes:
                yield from running.popleft().result()
        for future in running:
            yield from future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _cut_here(groups: Iterable[Group], encoder: PieceEncoder | None) -> Iterator[bytes]:
    builder = BlockBuilder(encoder)
    for group in groups:
        yield encode(builder.build(group))


def _cut_in_process(groups: Sequence[Group], encoder: PieceEncoder | None) -> list[bytes]:
    root = str(Path(__file__).resolve().parents[3])
    entries = [root, *(entry for entry in sys.path if Path(entry).is_absolute())]
    names = ("PATH", "LD_LIBRARY_PATH")  # no keys
    environment = {name: os.environ[name] for name in names if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(entries))
    try:
        # -P: nothing in the working directory, which may be untrusted, is ever imported.
        done = subprocess.run(
            [sys.executable, "-P", "-m", __spec__.name, encoder.fingerprint if encoder else ""],
            input=json.dumps(groups).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd="/",
            timeout=_SECONDS,
            start_new_session=True,  # Ctrl-C reaches only the parent
        )
        blocks = [b64decode(line) for line in done.stdout.splitlines()]
    except (OSError, ValueError, subprocess.SubprocessError):
        blocks = []
    return blocks if len(blocks) == len(groups) else list(_cut_here(groups, encoder))


def _serve(fingerprint: str) -> None:
    encoder: PieceEncoder | None = None
    if fingerprint:  # the layer above, which ships one encoder
        encoder = import_module("agent.retrieval.embedding.static").static_in()
        if encoder is None or encoder.fingerprint != fingerprint:
            return  # the parent cuts itself
    for block in _cut_here(json.load(sys.stdin), encoder):
        sys.stdout.write(f"{b64encode(block).decode()}\n")


if __name__ == "__main__":
    _serve(sys.argv[1])
