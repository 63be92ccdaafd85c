"""One prediction at a time, with real git and a real sandbox."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.datasets import Prediction, ScoringInstance, find_repository
from agent.evaluation.patches import (
    GivenIds,
    GivenStatus,
    Means,
    Order,
    Sandboxes,
    Scored,
    score,
)
from agent.verify import ValidationOptions
from sandbox import SandboxError, make_sandbox
from tests.support import scoring as shop
from tests.support.sandboxes import require_bwrap

pytestmark = pytest.mark.slow

Judge = Callable[..., Any]


@pytest.fixture(scope="session")
def sandboxes() -> Sandboxes:
    require_bwrap()
    return Sandboxes(lambda _: make_sandbox(unsafe=False))


@pytest.fixture
def judge(
    sandboxes: Sandboxes, repositories: Path, base: str, python: Path, tmp_path: Path
) -> Judge:
    def judge(
        predicted: str | None,
        *,
        timeout: float = 60.0,
        cancel: threading.Event | None = None,
        **row: Any,
    ) -> Scored | None:
        case = ScoringInstance.model_validate(shop.make_row(base, **row))
        prediction = Prediction(instance_id=case.instance_id, model_patch=predicted)
        means = Means(sandboxes, ValidationOptions(python, timeout=timeout))
        order = Order(case, prediction, find_repository(repositories, case.repo))
        return score(order, means, tmp_path / "result", cancel or threading.Event())

    return judge


ALL = GivenIds(success=shop.PASS_TO_PASS)
FIXED = GivenIds(success=shop.FAIL_TO_PASS)
NOT_FIXED = GivenIds(failure=shop.FAIL_TO_PASS)


@pytest.mark.slow
def test_a_patch_that_resolves(judge: Judge, tmp_path: Path) -> None:
    found = judge(shop.GOLD)

    assert found.outcome == "resolved"
    status = GivenStatus(FAIL_TO_PASS=FIXED, PASS_TO_PASS=ALL)
    assert found.of_harness() == {
        "patch_is_None": False,
        "patch_exists": True,
        "patch_successfully_applied": True,
        "resolved": True,
        "tests_status": status.model_dump(mode="json"),
    }
    assert found.reason == "1 of 1 FAIL_TO_PASS pass; 3 of 3 PASS_TO_PASS pass"
    assert (found.absent, found.notes, found.suspicion, found.ended) == ((), (), "", "exited")
    folder = tmp_path / "result"
    assert "exited (exit code 0)" in (folder / "test_output.txt").read_text()
    assert (folder / "patch.diff").read_text() == shop.GOLD


@pytest.mark.parametrize(
    ("patch", "fixed", "kept"),
    [
        (shop.HALF, NOT_FIXED, ALL),
        (
            shop.BREAKS,
            FIXED,
            GivenIds(success=shop.PASS_TO_PASS[2:], failure=shop.PASS_TO_PASS[:2]),
        ),
        (shop.BAD_SYNTAX, NOT_FIXED, GivenIds(failure=shop.PASS_TO_PASS)),
        (shop.CHEATS, NOT_FIXED, ALL),
        (shop.EXITS, NOT_FIXED, GivenIds(failure=shop.PASS_TO_PASS)),
    ],
)
def test_a_patch_that_does_not(judge: Judge, patch: str, fixed: GivenIds, kept: GivenIds) -> None:
    found = judge(patch)

    assert found.outcome == "unresolved"
    assert found.patch_successfully_applied
    assert not found.resolved
    assert found.tests_status == GivenStatus(FAIL_TO_PASS=fixed, PASS_TO_PASS=kept)
    if patch is shop.CHEATS:
        assert found.notes == ("tests/test_cart.py of the patch gave way to the test patch",)


def test_a_patch_that_hangs_is_cut_off(judge: Judge) -> None:
    found = judge(shop.HANGS, timeout=3.0)

    assert (found.outcome, found.ended) == ("unresolved", "wall-limit")
    assert "hit its time limit" in found.reason


def test_a_patch_that_does_not_apply(judge: Judge) -> None:
    found = judge(shop.STALE)

    assert (found.outcome, found.error) == ("not-applied", "")
    assert found.reason.startswith("patch failed: src/shop/cart.py:")
    assert (found.patch_exists, found.patch_successfully_applied) == (True, False)


@pytest.mark.parametrize("patch", [None, "", " \n"])
def test_no_patch(judge: Judge, patch: str | None) -> None:
    found = judge(patch)

    assert found.outcome == "empty-patch"
    assert (found.patch_is_None, found.patch_exists) == (patch is None, False)


def test_what_would_run_by_itself_is_left_out(judge: Judge) -> None:
    start = shop.change("sitecustomize.py", "import os\nos._exit(0)\n")
    steering = shop.change("conftest.py", "collect_ignore = []\n")

    found = judge(shop.GOLD + start + steering)

    assert found.outcome == "resolved"
    assert found.notes == (
        "left out of the run: conftest.py steers the tests (it configures the test run)",
        "left out of the run: sitecustomize.py would run by itself",
    )


_GREEN = (
    "import pytest\n\n\n@pytest.hookimpl(hookwrapper=True)\n"
    "def pytest_runtest_makereport(item, call):\n"
    "    result = (yield).get_result()\n"
    "    result.outcome = 'passed' if result.outcome == 'failed' else result.outcome\n"
)
_WITHOUT_FIX = {
    "a conftest.py": [shop.change("conftest.py", _GREEN)],
    "a conftest.py beside the tests": [shop.change("tests/conftest.py", _GREEN)],
    "a plugin named in .pytest.toml": [
        shop.change(".pytest.toml", '[pytest]\naddopts = ["-p", "green"]\n'),
        shop.change("green.py", _GREEN),
    ],
}


@pytest.mark.parametrize("name", _WITHOUT_FIX)
def test_what_steers_the_tests_is_not_used(judge: Judge, name: str) -> None:
    found = judge("".join(_WITHOUT_FIX[name]))

    assert found.outcome == "unresolved"
    assert found.tests_status == GivenStatus(FAIL_TO_PASS=NOT_FIXED, PASS_TO_PASS=ALL)
    assert found.notes[0].startswith("left out of the run: ")


def test_configuration_that_the_rows_own_patch_changes_stays(judge: Judge) -> None:
    configured = shop.change("pytest.ini", "[pytest]\nmarkers = slow\n")

    found = judge(shop.GOLD + configured, patch=shop.GOLD + configured)

    assert found.outcome == "resolved"
    assert found.notes == (
        "the row's own patch changes pytest.ini too: it configures the test run",
    )


def test_a_prediction_that_equals_everything_is_marked(judge: Judge) -> None:
    equal = "class Any(int):\n    def __eq__(self, other):\n        return 1 == 1\n\n\n"
    text = equal + shop.FILES["src/shop/cart.py"].replace("len(items) + 1", "Any()")

    found = judge(shop.change("src/shop/cart.py", text))

    assert found.outcome == "unresolved"
    assert "holds for another value too" in found.suspicion


@pytest.mark.parametrize(
    ("row", "error", "words"),
    [
        ({"repo": "owner/none"}, "repository", "no repository of owner/none in --repos"),
        ({"base_commit": "0" * 40}, "repository", "no commit '0000"),
        ({"test_patch": shop.STALE}, "test-patch", "test_patch does not apply to"),
        ({"test_patch": "nonsense"}, "test-patch", "not a unified diff"),
    ],
)
def test_a_row_that_cannot_be_used(
    judge: Judge, row: dict[str, Any], error: str, words: str
) -> None:
    found = judge(shop.GOLD, **row)

    assert (found.outcome, found.error) == ("error", error)
    assert words in found.reason


def test_an_environment_without_what_tests_need_is_to_blame(judge: Judge, tmp_path: Path) -> None:
    broken = shop.change(
        "tests/test_cart.py", "import not_installed_here\n" + shop.FILES["tests/test_cart.py"]
    )

    found = judge(shop.GOLD, test_patch=broken)

    assert (found.outcome, found.error) == ("error", "environment")
    assert "no test can be run with the row's own patch either" in found.reason
    log = tmp_path / "result" / "test_output.txt"
    assert "not_installed_here" in log.read_text()


def test_a_result_is_kept_and_taken_again(judge: Judge, tmp_path: Path) -> None:
    first = judge(shop.GOLD)
    assert not first.kept
    log = tmp_path / "result" / "test_output.txt"
    log.write_text("untouched")

    assert judge(shop.GOLD) == first.model_copy(update={"kept": True})
    assert "kept" not in (log.parent / "result.json").read_text()
    assert log.read_text() == "untouched"
    assert judge(shop.HALF).outcome == "unresolved"
    assert log.read_text() != "untouched"


def test_a_stopped_one_is_not_kept(judge: Judge, tmp_path: Path) -> None:
    cancel = threading.Event()
    cancel.set()

    assert judge(shop.GOLD, cancel=cancel) is None
    assert not (tmp_path / "result" / "result.json").exists()


def test_an_image_that_is_not_there(repositories: Path, base: str, tmp_path: Path) -> None:
    def make(image: str | None) -> Any:
        raise SandboxError(f"no image {image} here")

    case = ScoringInstance.model_validate(shop.make_row(base))
    prediction = Prediction(instance_id=case.instance_id, model_patch=shop.GOLD)
    means = Means(Sandboxes(make, "registry/{id_1776}:v"), ValidationOptions())
    order = Order(case, prediction, repositories / "owner__shop")

    found = score(order, means, tmp_path, threading.Event())
    assert found is not None

    assert (found.outcome, found.error) == ("error", "environment")
    assert found.reason == "no image registry/owner_1776_shop-1:v here"
