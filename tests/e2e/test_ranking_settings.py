"""What the user sets for ranking acts through the commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.agent_process import run_agent
from tests.support.behaviours import Good
from tests.support.scripted_provider import ScriptedProvider

pytestmark = pytest.mark.e2e

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]


@pytest.mark.slow
def test_no_code_is_sent_only_if_the_user_insists(
    make_repository: MakeRepository, tmp_path: Path
) -> None:
    repository = make_repository({"wide.py": f"WIDE = [{'1, ' * 4000}]\n"})
    issue = tmp_path / "issue.md"
    issue.write_text("# WIDE in wide.py is wrong\n")
    solve = (
        "solve", "--problem", str(issue), "--repo", str(repository), "--context-tokens", "200",
        "--preset", "original", "--no-tests", "--no-keep", "--no-iterative",
    )  # fmt: skip
    with ScriptedProvider([Good("I see no code")]) as provider:
        theirs = {"PATCHSHOT_BASE_URL": provider.base_url, "PATCHSHOT_MODEL": "scripted"}
        refused = run_agent(*solve, home=tmp_path, **theirs)
        assert (refused.returncode, provider.chats) == (2, [])
        assert "no code fits into the context" in refused.stderr
        run_agent(*solve, home=tmp_path, PATCHSHOT_ALLOW_EMPTY_CONTEXT="1", **theirs)
        assert provider.chats
