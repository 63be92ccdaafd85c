"""Calls `agent_main` as the programs of the miner contract do, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.conftest import ROOT
from tests.support.loopback import HttpServer, Received, Scripted
from tests.support.scripted_provider import ScriptedProvider, embed_text

Generation = Literal["p1", "p2", "p3"]
MODEL = "scripted"
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

# The contract's fourth loader: the file is a module that no `sys.modules` knows. Its name is what
# the file is called, which is also what our package is called.
_LOADER = """
import asyncio, importlib.util, json, sys
entry, in_a_loop, task, times = json.loads(sys.argv[1])
if entry is None:
    from agent.miner import agent_main
else:
    spec = importlib.util.spec_from_file_location("agent", entry)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert "agent" not in sys.modules
    agent_main = module.agent_main
async def within():
    return agent_main(task)
for _ in range(times):
    try:
        said = asyncio.run(within()) if in_a_loop else agent_main(task)
        print(json.dumps({"value": said}))
    except Exception as error:
        print(json.dumps({"errors": [c.__name__ for c in type(error).__mro__], "said": str(error)}))
"""


@dataclass(frozen=True, slots=True)
class Called:
    """How one call ended: `value`, or the names of the error's classes and what it `said`."""

    value: Any
    errors: tuple[str, ...]
    said: str
    stderr: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: an `entry` file (None: the installed package), from `cwd`, by `python`."""

    cwd: Path
    home: Path
    entry: Path | None = None
    python: str = sys.executable
    in_a_loop: bool = False
    times: int = 1
    prefix: tuple[str, ...] = ()  # what the interpreter is run by

    def call(self, task: Mapping[str, Any] | None, variables: Mapping[str, str]) -> list[Called]:
        """Call so many times; the environment is `variables`, PATH and a home of its own."""
        begin = time.monotonic()
        process = self.start(task, variables)
        out, err = process.communicate(timeout=110)
        seconds = time.monotonic() - begin
        stderr = err.decode("utf-8", "replace")
        assert process.returncode == 0, stderr
        lines: Sequence[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
        return [
            Called(
                line.get("value"),
                tuple(line.get("errors", ())),
                line.get("said", ""),
                stderr,
                seconds,
            )
            for line in lines
        ]

    def start(
        self, task: Mapping[str, Any] | None, variables: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """The calling process, just started; stdout and stderr are pipes."""
        package = {} if self.entry else {"PYTHONPATH": str(ROOT)}
        entry = None if self.entry is None else str(self.entry)
        given = [entry, self.in_a_loop, task, self.times]
        return subprocess.Popen(
            [*self.prefix, self.python, "-c", _LOADER, json.dumps(given)],
            cwd=self.cwd,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), **package, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


def settings_for(provider: ScriptedProvider, **settings: str) -> dict[str, str]:
    """The variables that name the scripted server, with PATCHSHOT_* names beside them."""
    own = {
        "BASE_URL": provider.base_url,
        "API_KEY": "test",
        "MODEL": provider.model,
        "EMBED": "off",
        **settings,
    }
    return {f"PATCHSHOT_{name}": value for name, value in own.items()}


class MinerProxy(HttpServer):
    """The inference proxy of a generation of the contract; it checks what that one checks."""

    def __init__(self, reply: str, generation: Generation) -> None:
        super().__init__()
        self._reply = reply
        self._generation = generation

    @property
    def calls(self) -> list[Received]:
        """The calls for a reply."""
        return [one for one in self.requests if one.target.endswith("/inference")]

    def answer(self, request: Received) -> Scripted:
        path = request.target.rsplit("/", 1)[-1]
        if request.method == "GET" and path in ("inference-models", "embedding-models"):
            return Scripted([{"name": MODEL, "dimensions": 64}])
        if request.method == "GET" or path not in ("inference", "embedding"):
            return Scripted({"detail": "Not Found"}, 404)
        if problem := self._problem(request.json, chat=path == "inference"):
            return Scripted({"detail": problem}, 422)
        if path == "inference":
            last = self._generation == "p3"
            return Scripted(
                {"content": self._reply, "tool_calls": []} if last else json.dumps(self._reply)
            )
        if self._generation == "p2":
            return Scripted({"detail": "Not Implemented"}, 501)
        vector = embed_text(request.json["input"])
        return Scripted({"embedding": vector} if self._generation == "p3" else [vector])

    def _problem(self, body: Mapping[str, Any], *, chat: bool) -> str:
        field = "evaluation_run_id" if self._generation == "p3" else "run_id"
        if field not in body:
            return f"{field}: Field required"
        texts = [message["content"] for message in body["messages"]] if chat else [body["input"]]
        if not all(isinstance(text, str) for text in texts):
            return "content: Input should be a valid string"
        if self._generation == "p1":
            return ""
        if not _UUID.fullmatch(body[field]):
            return f"{field}: Input should be a valid UUID"
        if chat and body.get("model") != MODEL:
            return "model: unknown"
        return "temperature: Field required" if chat and "temperature" not in body else ""
