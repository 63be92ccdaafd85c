from __future__ import annotations

import threading
from pathlib import Path

from sandbox.types import Command, Ended, RunResult, Sandbox
from sandbox.workspace import Workspace, empty_workspace
from tests.support.scripted_sandbox import Run, ScriptedSandbox, exited


def test_answers_come_in_order_and_calls_are_remembered() -> None:
    def write(command: Command, workspace: Workspace) -> RunResult:
        workspace.write("made", b"1")
        return exited(stdout=command.argv[0].encode())

    scripted = ScriptedSandbox([write, exited(3)])
    sandbox: Sandbox = scripted
    commands = [Command((name,)) for name in ("first", "second", "third")]
    with empty_workspace(mount=Path("/srv/x")) as workspace:
        results = [sandbox.run(command, workspace) for command in commands]
    assert [(result.exit_code, result.stdout) for result in results] == [
        (0, b"first"),
        (3, b""),
        (3, b""),
    ]
    after = (("made", b"1"),)
    assert scripted.runs == [
        Run(command, Path("/srv/x"), files)
        for command, files in zip(commands, ((), after, after), strict=True)
    ]


def test_a_cancelled_run_is_cancelled() -> None:
    cancel = threading.Event()
    cancel.set()
    with empty_workspace(mount=Path("/srv/x")) as workspace:
        result = ScriptedSandbox().run(Command(("x",)), workspace, cancel=cancel)
    assert result.ended is Ended.CANCELLED
