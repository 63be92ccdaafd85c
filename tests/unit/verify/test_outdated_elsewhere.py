"""Tests of other languages that a reply calls outdated: their real programs, real bubblewrap."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent.types import OutdatedTest, ReproductionTest, Verdict
from tests.support.runners import require_program
from tests.support.sandboxes import require_bwrap
from tests.support.validation import edit, patch_of, validated

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]


def check_of(name: str, way: int, by: int, wanted: int) -> str:
    return (
        f"func {name}(t *testing.T) {{\n\tif Turn({way}, {by}) != {wanted} {{\n"
        f"\t\tt.Fatal(Turn({way}, {by}))\n\t}}\n}}\n"
    )


HEAD = 'package turn\n\nimport "testing"\n\n'
GO = {
    "go.mod": "module example.com/m\n\ngo 1.19\n",
    "turn/turn.go": "package turn\n\nfunc Turn(a, b int) int { return (a - b + 360) % 360 }\n",
    "turn/turn_test.go": HEAD
    + check_of("TestRight", 0, 90, 270)
    + check_of("TestNone", 45, 0, 45)
    + check_of("TestHalf", 0, 180, 180)
    + check_of("TestRound", 10, 360, 10),
}
GO_ISSUE = ReproductionTest("turn/issue_test.go", HEAD + check_of("TestIssue", 10, 20, 30))

Make = Callable[..., Path]


def test_go_takes_the_name_of_a_file_or_a_package(make_repository: Make) -> None:
    require_bwrap()
    require_program("go")
    repository = make_repository(GO)
    old = GO["turn/turn.go"]
    patch = patch_of(edit("turn/turn.go", old, old.replace("a - b + 360", "a + b")))
    for name in ("turn/turn_test.go::TestRight", "example.com/m/turn.TestRight"):
        report = validated(
            repository,
            patch,
            GO_ISSUE,
            problem="turn() turns to the left",
            outdated=(OutdatedTest(name, "right is plus"),),
            timeout=100.0,
        )
        assert report.verdict is Verdict.VERIFIED, report.reason
        assert report.reason.startswith("Outdated are 1 of 4 existing tests")
        assert report.reason.endswith("- turn::TestRight: right is plus (turn_test.go:7: 90)")
