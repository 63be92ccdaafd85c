"""`agent verify` and `import patchshot` on a small repository, with real tests in the sandbox."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import patchshot
import pytest

from tests.conftest import run_git
from tests.support.sandboxes import require_bwrap
from tests.support.scripted_provider import ScriptedProvider
from tests.support.user import User

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

FIXED = "def double(number):\n    return number * 2\n"
BROKEN = FIXED.replace("* 2", "* 3")
TEST = "from shop import double\n\n\ndef test_double():\n    assert double(4) == 8\n"
OLD_TEST = "from shop import double\n\n\ndef test_nothing():\n    assert double(0) == 0\n"
ISSUE = "double(4) returns 12\n\nIt must return 8.\n"


@pytest.fixture
def user(make_repository: Callable[[Mapping[str, str]], Path], tmp_path: Path) -> User:
    require_bwrap()
    repository = make_repository({"shop.py": BROKEN, "tests/test_old.py": OLD_TEST})
    return User(tmp_path / "home", repository, ISSUE)


def write_diff(user: User, **files: str) -> str:
    """The diff that git makes of these new contents; the repository stays as it was."""
    for name, text in files.items():
        (user.repository / name).write_text(text, "utf-8")
    run_git(user.repository, "add", "-A")
    diff = run_git(user.repository, "diff", "--cached")
    run_git(user.repository, "reset", "-q", "--hard")
    (user.home / "fix.diff").write_text(diff)
    return diff


VERIFY = ("verify", "--diff", "fix.diff")


def test_a_fix_with_its_test_is_verified_by_command_and_function(user: User) -> None:
    diff = write_diff(user, **{"shop.py": FIXED, "tests/test_double.py": TEST})
    printed = user.read(*VERIFY, *user.task[2:])
    assert printed["verdict"] == "verified"
    assert printed["usage"]["calls"] == 0
    returned = patchshot.verify(diff, user.repository).model_dump(mode="json")
    times = {"timings", "attempts", "receipt"}
    assert {**returned, **dict.fromkeys(times)} == {**printed, **dict.fromkeys(times)}
    assert run_git(user.repository, "status", "--porcelain") == ""


def test_a_patch_that_breaks_a_test_is_not(user: User) -> None:
    write_diff(user, **{"shop.py": FIXED.replace("* 2", "+ 3")})
    done = user.run(*VERIFY, *user.task[2:], "--json")
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (6, "regressed"), done.stderr
    assert "VERIFIED" not in done.stderr


def test_a_test_that_is_not_in_the_patch_is_refused(user: User) -> None:
    write_diff(user, **{"shop.py": FIXED})
    done = user.run(*VERIFY, *user.task[2:], "--test", "tests/test_gone.py")
    assert done.returncode == 2
    words = "tests/test_gone.py is not a test file that the patch adds or changes"
    assert words in done.stderr


def test_solve_returns_the_result_and_reports_progress(user: User) -> None:
    reply = {
        "edits": [{"path": "shop.py", "search": "number * 3", "replace": "number * 2"}],
        "reproduction_test": {"path": "tests/test_double.py", "content": TEST},
    }
    events: list[patchshot.Event] = []
    with ScriptedProvider([json.dumps(reply)]) as provider:
        result = patchshot.solve(
            ISSUE,
            user.repository,
            base_url=provider.base_url,
            model=provider.model,
            api_key="test",
            embed="off",
            on_event=events.append,
        )
    assert (result.verdict, result.exit_code, result.usage.calls) == ("verified", 0, 1)
    assert "-    return number * 3\n+    return number * 2\n" in result.diff
    stages = [event.stage for event in events if isinstance(event, patchshot.StageFinished)]
    assert stages[:4] == ["retrieve", "pack", "call", "apply"]
    assert stages[-1] == "validate"
    assert run_git(user.repository, "status", "--porcelain") == ""


def test_context_and_search_need_no_model(user: User) -> None:
    shown = patchshot.context(ISSUE, user.repository)
    assert "return number * 3" in shown.text
    assert shown.receipt.pieces
    [first, *_] = patchshot.search("double a number", user.repository, limit=2)
    assert first.chunk.path == "shop.py"


def test_a_call_that_cannot_work_says_what_to_do(user: User) -> None:
    async def block() -> None:
        patchshot.solve(ISSUE, user.repository)

    with pytest.raises(patchshot.ConfigurationError, match="max_cots"):
        patchshot.solve(ISSUE, user.repository, max_cots=1)
    with pytest.raises(patchshot.ConfigurationError, match="await solve_async"):
        asyncio.run(block())


def test_a_branch_is_judged_from_where_it_left_the_base(user: User) -> None:
    git = partial(run_git, user.repository)
    git("checkout", "-q", "-b", "fix")
    (user.repository / "shop.py").write_text(FIXED)
    git("commit", "-qam", "fix")
    git("checkout", "-q", "-")
    (user.repository / "other.py").write_text("later = 1\n")
    git("add", "other.py")
    git("commit", "-qm", "later")
    options = ("verify", "--base", "HEAD", "--head", "fix", "--repo", str(user.repository))
    plain = user.read(*options)
    assert (plain["verdict"], plain["usage"]["calls"]) == ("not-regressed", 0)
    assert "other.py" not in plain["diff"]
    issue = str(user.issue)
    test = json.dumps({"reproduction_test": {"path": "tests/test_double.py", "content": TEST}})
    asked = ("--problem", issue, "--evidence", "independent", "--json")
    done, provider = user.ask([test], *options, *asked)
    graded = json.loads(done.stdout)
    assert (graded["verdict"], graded["evidence"]) == ("verified", "independent"), done.stderr
    assert graded["attempts"][0]["validation"]["fail_to_pass"]
    [chat] = provider.chats
    assert "number * 3" in chat.prompt
    assert "number * 2" not in chat.prompt
    assert user.run(*options[:2], "fix", *options[3:]).returncode == 2  # nothing to judge
