"""`agent verify` and `import patchshot` on a small repository, with real tests in the sandbox."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import patchshot
import pytest

from tests.conftest import run_git
from tests.support.agent_process import AGENT, agent_environment
from tests.support.behaviours import Good
from tests.support.scripted_provider import ScriptedProvider
from tests.support.solve_command import require_sandbox

OTHER = "def double(number):\n    return number + 3\n"

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

BROKEN = "def double(number):\n    return number * 3\n"
FIXED = "def double(number):\n    return number * 2\n"
TEST = "from shop import double\n\n\ndef test_double():\n    assert double(4) == 8\n"
OLD_TEST = "from shop import double\n\n\ndef test_nothing():\n    assert double(0) == 0\n"
ISSUE = "double(4) returns 12\n\nIt must return 8.\n"


@pytest.fixture
def repository(make_repository: Callable[[Mapping[str, str]], Path]) -> Path:
    require_sandbox()
    return make_repository({"shop.py": BROKEN, "tests/test_old.py": OLD_TEST})


def diff_of(repository: Path, **files: str) -> str:
    """The diff that git makes of these new contents; the repository stays as it was."""
    for name, text in files.items():
        (repository / name).write_text(text, "utf-8")
    run_git(repository, "add", "-A")
    diff = run_git(repository, "diff", "--cached")
    run_git(repository, "reset", "-q", "--hard")
    return diff


def verify(repository: Path, tmp_path: Path, diff: str, *options: str) -> tuple[int, dict, str]:
    patch = tmp_path / "fix.diff"
    patch.write_text(diff, "utf-8")
    done = subprocess.run(
        [*AGENT, "verify", "--json", "--diff", str(patch), "--repo", str(repository), *options],
        env=agent_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def test_a_fix_with_its_test_is_verified(repository: Path, tmp_path: Path) -> None:
    diff = diff_of(repository, **{"shop.py": FIXED, "tests/test_double.py": TEST})
    code, result, stderr = verify(repository, tmp_path, diff)
    assert (code, result["verdict"]) == (0, "verified"), stderr
    assert result["usage"]["calls"] == 0
    assert run_git(repository, "status", "--porcelain") == ""


def test_the_function_gives_what_the_command_gives(repository: Path, tmp_path: Path) -> None:
    diff = diff_of(repository, **{"shop.py": FIXED, "tests/test_double.py": TEST})
    _, printed, _ = verify(repository, tmp_path, diff)
    returned = patchshot.verify(diff, repository).model_dump(mode="json")
    times = {"timings", "attempts", "receipt"}
    assert {**returned, **dict.fromkeys(times)} == {**printed, **dict.fromkeys(times)}


def test_solve_returns_the_result_and_reports_progress(repository: Path) -> None:
    reply = {
        "edits": [{"path": "shop.py", "search": "number * 3", "replace": "number * 2"}],
        "reproduction_test": {"path": "tests/test_double.py", "content": TEST},
    }
    events: list[patchshot.Event] = []
    with ScriptedProvider([Good(json.dumps(reply))]) as provider:
        result = patchshot.solve(
            ISSUE,
            repository,
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
    assert run_git(repository, "status", "--porcelain") == ""


def test_context_and_search_need_no_model(repository: Path) -> None:
    shown = patchshot.context(ISSUE, repository)
    assert "return number * 3" in shown.text
    assert shown.receipt.pieces
    [first, *_] = patchshot.search("double a number", repository, limit=2)
    assert first.chunk.path == "shop.py"


def test_an_unknown_setting_is_named(repository: Path) -> None:
    with pytest.raises(patchshot.ConfigurationError, match="max_cots"):
        patchshot.solve(ISSUE, repository, max_cots=1)


def test_a_blocking_call_in_an_event_loop_names_the_other_function(repository: Path) -> None:
    async def call() -> None:
        patchshot.solve(ISSUE, repository)

    with pytest.raises(patchshot.ConfigurationError, match="await solve_async"):
        asyncio.run(call())


def test_a_patch_that_breaks_a_test_is_not(repository: Path, tmp_path: Path) -> None:
    code, result, stderr = verify(repository, tmp_path, diff_of(repository, **{"shop.py": OTHER}))
    assert (code, result["verdict"]) == (6, "regressed"), stderr
    assert "VERIFIED" not in stderr


def test_a_test_that_is_not_in_the_patch_is_refused(repository: Path, tmp_path: Path) -> None:
    diff = diff_of(repository, **{"shop.py": FIXED})
    code, _, stderr = verify(repository, tmp_path, diff, "--test", "tests/test_gone.py")
    assert code == 2
    assert "tests/test_gone.py is not a test file that the patch adds or changes" in stderr
