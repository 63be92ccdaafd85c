"""Go's tests are built once on the base; each run has a copy of what was built."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from agent.repository.snapshot import take_snapshot
from agent.types import FileChange, Outcome
from agent.types.events import StageFinished
from agent.verify.executor import SuiteExecutor, SuiteJob, Task, ValidationOptions
from agent.verify.path_rules import steers_tests
from sandbox.bwrap import BwrapSandbox
from tests.support.runners import require_program
from tests.support.sandboxes import require_bwrap

TEST = """package m

import (
	"os"
	"path/filepath"
	"testing"
)

func TestNoOtherRunWasHere(t *testing.T) {
	for _, folder := range []string{".", os.Getenv("GOCACHE")} {
		mine := filepath.Join(folder, "mine")
		if _, err := os.Stat(mine); err == nil {
			t.Fatal("another run was in " + folder)
		}
		if err := os.WriteFile(mine, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
"""


@pytest.mark.slow
def test_tests_are_built_once_and_no_run_sees_what_another_one_wrote(
    make_repository: Callable[..., Path],
) -> None:
    require_bwrap()
    require_program("go")
    root = make_repository({"go.mod": "module example.com/m\n\ngo 1.16\n", "m_test.go": TEST})
    built: list[float] = []

    def report(event: object) -> None:
        if isinstance(event, StageFinished) and event.stage == "setup":
            built.append(event.seconds)

    cancel = threading.Event()
    options = ValidationOptions(timeout=60.0)
    with closing(SuiteExecutor(take_snapshot(root), BwrapSandbox(), options, report)) as made:
        made.prepare(cancel)
        suite, _ = made.suite((), cancel)
        change = FileChange("m.go", None, b"package m\n")
        tasks = [Task(SuiteJob(suite), changes, "") for changes in ((change,), (), (change,))]
        runs = [made.run([task], cancel)[0] for task in tasks]
    assert [set(run.outcomes.values()) for run in runs] == [{Outcome.PASSED}] * 3
    assert len(built) == 1
    assert not (root / ".patchshot-build").exists()


def test_a_patch_cannot_bring_what_was_built() -> None:
    assert steers_tests(".patchshot-build/00/a-d")
