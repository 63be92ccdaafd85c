"""Calls `agent_main` as the programs of the miner contract do, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.support.scripted_provider import ScriptedProvider

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
