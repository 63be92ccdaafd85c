"""Runs one command in a sandbox and prints the result: a separate program, so that another uid can.

Reads one JSON object: {"backend", "argv", "files", "environment", "cwd", "report", "limits",
"cancel_after"}, and writes the RunResult as JSON, its bytes in latin-1; or {"probe": backend}, and
writes the Probe.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
from pathlib import Path

from sandbox.bwrap import BwrapSandbox
from sandbox.in_place import ProcessSandbox
from sandbox.landlock import LandlockSandbox
from sandbox.types import Command, Limits, RunResult, Sandbox
from sandbox.workspace import empty_workspace

BACKENDS = {"bwrap": BwrapSandbox, "landlock": LandlockSandbox, "process": ProcessSandbox}
MOUNT = Path("/srv/project")


def execute(request: dict[str, object], sandbox: Sandbox | None = None) -> RunResult:
    """Run the command of `request` in a fresh workspace."""
    given = json.loads(json.dumps(request))
    command = Command(
        argv=tuple(given["argv"]),
        environment=given["environment"],
        cwd=given["cwd"],
        limits=Limits(**given["limits"]),
        report=given["report"],
    )
    cancel = threading.Event()
    if given["cancel_after"] is not None:
        threading.Timer(given["cancel_after"], cancel.set).start()
    backend = sandbox or BACKENDS[given["backend"]]()
    with empty_workspace(mount=MOUNT) as workspace:
        for path, text in given["files"].items():
            workspace.write(path, text.encode())
        return backend.run(command, workspace, cancel=cancel)


def encode(result: RunResult) -> str:
    values = dataclasses.asdict(result)
    return json.dumps(
        {k: v.decode("latin-1") if isinstance(v, bytes) else v for k, v in values.items()}
    )


def decode(text: str) -> RunResult:
    from sandbox.types import Ended

    values = json.loads(text)
    for name in ("stdout", "stderr", "report"):
        values[name] = values[name].encode("latin-1")
    return RunResult(**{**values, "ended": Ended(values["ended"])})


def main() -> None:
    request = json.load(sys.stdin)
    if "probe" in request:
        probe = BACKENDS[request["probe"]]().probe()
        sys.stdout.write(json.dumps(dataclasses.asdict(probe)))
    else:
        sys.stdout.write(encode(execute(request)))


if __name__ == "__main__":
    main()
