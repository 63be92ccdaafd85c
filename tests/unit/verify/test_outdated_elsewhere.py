"""Tests of other languages that a reply calls outdated: their real programs, real bubblewrap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.types import OutdatedTest, ReproductionTest, ValidationReport, Verdict
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

IMPORTS = (
    "import { describe, test } from 'node:test';\nimport assert from 'node:assert';\n"
    "import { turn } from '../turn.js';\n"
)
NODE = {
    "package.json": '{"name": "m", "type": "module", "scripts": {"test": "node --test"}}',
    "turn.js": "export function turn(a, b) { return (a - b + 360) % 360; }\n",
    "test/turn.test.js": IMPORTS + "describe('turn', () => {\n"
    "  test('right', () => {\n    assert.strictEqual(turn(0, 90), 270);\n  });\n"
    "  test('none', () => assert.strictEqual(turn(45, 0), 45));\n"
    "  test('half', () => assert.strictEqual(turn(0, 180), 180));\n"
    "  test('round', () => assert.strictEqual(turn(10, 360), 10));\n});\n",
}
NODE_ISSUE = ReproductionTest(
    "test/issue.test.js",
    IMPORTS + "test('issue', () => assert.strictEqual(turn(10, 20), 30));\n",
)

Make = Callable[..., Path]


def validate(
    repository: Path,
    files: Mapping[str, str],
    path: str,
    test: ReproductionTest,
    outdated: OutdatedTest,
) -> ValidationReport:
    old = files[path]
    patch = patch_of(edit(path, old, old.replace("a - b + 360", "a + b")))
    problem = "turn() turns to the left"
    return validated(repository, patch, test, problem=problem, outdated=(outdated,), timeout=100.0)


def test_go_takes_the_name_of_a_file_or_a_package(
    make_repository: Make,
) -> None:
    require_bwrap()
    require_program("go")
    repository = make_repository(GO)
    for name in ("turn/turn_test.go::TestRight", "example.com/m/turn.TestRight"):
        one = OutdatedTest(name, "right is plus")
        report = validate(repository, GO, "turn/turn.go", GO_ISSUE, one)
        assert report.verdict is Verdict.VERIFIED, report.reason
        assert report.reason.startswith("Outdated are 1 of 4 existing tests")
        assert report.reason.endswith("- turn::TestRight: right is plus (turn_test.go:7: 90)")


def test_node_takes_the_title(make_repository: Make) -> None:
    require_bwrap()
    require_program("node")
    one = OutdatedTest("turn right", "right is plus")
    report = validate(make_repository(NODE), NODE, "turn.js", NODE_ISSUE, one)
    assert report.verdict is Verdict.VERIFIED, report.reason
    (finding,) = report.outdated
    assert finding.id == "test/turn.test.js::turn > right"
    assert finding.shown.endswith("Expected values to be strictly equal: 90 !== 270")
