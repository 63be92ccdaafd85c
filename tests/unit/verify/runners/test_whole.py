"""A patch of a project that is not Python, from detection to the verdict."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.repository.snapshot import take_snapshot
from agent.types import Problem, ReproductionTest, ValidationReport, Verdict
from agent.verify.validator import SandboxValidator, ValidationOptions
from sandbox.bwrap import BwrapSandbox
from tests.support.runners import require_program
from tests.support.sandboxes import require_bwrap
from tests.support.validation import edit, patch_of

pytestmark = pytest.mark.slow

MakeRepository = Callable[..., Path]


def validate(
    repository: Path,
    before: Mapping[str, str],
    after: Mapping[str, str],
    test: ReproductionTest | None = None,
) -> ValidationReport:
    patch = patch_of(*(edit(path, before.get(path), text) for path, text in after.items()))

    async def run() -> ValidationReport:
        snapshot, problem = take_snapshot(repository), Problem("add() subtracts", "")
        options = ValidationOptions(timeout=100.0)
        async with SandboxValidator(snapshot, problem, BwrapSandbox(), options) as validator:
            return await validator.validate(patch, test)

    return asyncio.run(run())


NODE = {
    "package.json": json.dumps({"scripts": {"test": "node --test"}}),
    "sum.js": "exports.add = (a, b) => a - b;\n",
    "sum.test.js": """
const test = require('node:test');
const assert = require('node:assert');
const { add } = require('./sum.js');
test('zero', () => assert.equal(add(1, 0), 1));
""",
}
NODE_FIX = {"sum.js": "exports.add = (a, b) => a + b;\n"}
NODE_ISSUE = ReproductionTest(
    "issue.test.js", NODE["sum.test.js"].replace("'zero'", "'one'").replace("1, 0), 1", "1, 1), 2")
)


def test_a_fix_in_javascript_is_verified_by_the_replys_own_test(
    make_repository: MakeRepository,
) -> None:
    require_bwrap()
    require_program("node")
    report = validate(make_repository(NODE, "target"), NODE, NODE_FIX, NODE_ISSUE)
    assert report.verdict is Verdict.VERIFIED, report.reason
    assert report.newly_passing == ("issue.test.js::one",)
    assert [test.path for test in report.selected] == ["sum.test.js"]


def test_a_patch_in_javascript_that_breaks_a_test_is_refused(
    make_repository: MakeRepository,
) -> None:
    require_bwrap()
    require_program("node")
    broken = {"sum.js": "exports.add = (a, b) => 7;\n"}
    report = validate(make_repository(NODE, "target"), NODE, broken)
    assert report.verdict is Verdict.REGRESSED, report.reason
    assert report.newly_failing == ("sum.test.js::zero",)


RUST = {
    "Cargo.toml": '[package]\nname = "sums"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/lib.rs": "pub fn add(a: i32, b: i32) -> i32 {\n    a - b\n}\n",
    "tests/whole.rs": "#[test]\nfn one() {\n    assert_eq!(sums::add(1, 1), 2);\n}\n",
}


def test_a_red_test_in_rust_that_turns_green_is_proof(make_repository: MakeRepository) -> None:
    require_bwrap()
    require_program("cargo")
    fix = {"src/lib.rs": RUST["src/lib.rs"].replace("-", "+").replace("+>", "->")}
    report = validate(make_repository(RUST, "target"), RUST, fix)
    assert report.verdict is Verdict.VERIFIED, report.reason
    assert report.newly_passing == ("tests/whole.rs::one",)
