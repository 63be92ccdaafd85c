"""The process in which a local model runs: a script that needs only the standard library.

`agent.llm.local.local_model` starts it and exchanges JSON Lines with it. On stdin come the options,
then one chat request a line. On stdout goes `{"ready": true}` once the model is loaded, then one
line for each request: llama.cpp's own reply, or `{"error": {...}}`. The process ends with stdin.

llama.cpp opens a listener of its own, which nothing here uses. It is put on a socket in the
caller's private folder, behind a random key.
"""

from __future__ import annotations

import json
import os
import queue
import secrets
import signal
import sys
import threading
from typing import Any, BinaryIO

_LONGEST_SOCKET = 100  # Linux takes paths of 107 bytes


def _serve(source: BinaryIO, sink: BinaryIO) -> None:
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    options = json.loads(source.readline())
    threading.Thread(target=_receive, args=(source, requests), daemon=True).start()
    try:
        server = _load(options)
    except (ImportError, RuntimeError, ValueError) as error:
        _send(sink, _error(error))
        return
    _send(sink, {"ready": True})
    while True:
        try:
            answer = server.handle_chat_completions(json.loads(requests.get()))
        except (RuntimeError, ValueError) as error:
            answer = _error(error)
        _send(sink, answer)


def _receive(source: BinaryIO, requests: queue.SimpleQueue[bytes]) -> None:
    """Queue requests. The process ends with its input, even while a request is running."""
    for line in source:
        requests.put(line)
    os._exit(0)


def _load(options: dict[str, Any]) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = options["path"]
    params.n_ctx = options["context"]
    params.n_parallel = 1
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = options["threads"]
    params.warmup = False
    params.offline = True
    params.ctx_shift = False  # a reply that reaches the end of the window ends there
    params.verbosity = 1  # errors
    params.api_keys = [secrets.token_hex()]
    params.endpoint_slots = params.endpoint_props = False
    if len(options["socket"].encode()) <= _LONGEST_SOCKET:
        params.hostnames = [options["socket"]]
    return xllamacpp.Server(params)


def _error(error: Exception) -> dict[str, Any]:
    return {"error": {"type": type(error).__name__, "message": str(error)}}


def _send(sink: BinaryIO, value: Any) -> None:
    sink.write(json.dumps(value).encode("ascii") + b"\n")
    sink.flush()


def main() -> None:
    """Serve until stdin ends. Output of native code goes to stderr, not between the replies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's to handle
    sink = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    _serve(sys.stdin.buffer, sink)


if __name__ == "__main__":
    main()
