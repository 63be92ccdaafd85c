"""What the user sets for ranking acts through the commands: bonus, words, floor."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_process import run_agent
from tests.support.behaviours import Good
from tests.support.scripted_provider import ScriptedProvider

pytestmark = pytest.mark.e2e

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]
FILES = {
    "shop/cart.py": 'def total(prices):\n    """Sum of the prices."""\n    return sum(prices)\n',
    "shop/colors.py": "def paint(text):\n    return text\n",
    "shop/names.py": "def clean(name):\n    return name.strip()\n",
}
QUERY = "the sum of the prices is wrong"


@pytest.fixture
def repository(make_repository: MakeRepository) -> Path:
    return make_repository(FILES)


def search(home: Path, repository: Path, *arguments: str, **variables: str) -> dict[str, Any]:
    done = run_agent(
        "search", *(arguments or (QUERY,)), "--repo", str(repository), "--json",
        home=home, **variables,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "stderr": done.stderr}


@pytest.mark.slow
def test_the_bonus_for_file_names_acts_in_the_default_preset(
    repository: Path, tmp_path: Path
) -> None:
    query = f"{QUERY}, not the names in colors.py"
    plain = search(tmp_path, repository, query)
    named = search(tmp_path, repository, query, PATCHSHOT_FILENAME_BONUS="50")
    assert plain["results"][0]["path"] == "shop/cart.py"
    assert named["results"][0]["path"] == "shop/colors.py"
    assert {"feature": "filename", "value": 50.0, "note": "colors.py is in the problem"} in named[
        "results"
    ][0]["reasons"]


@pytest.mark.slow
def test_words_of_a_model_rank_the_code(repository: Path, tmp_path: Path) -> None:
    query = "the wall has another hue"
    with ScriptedProvider([Good("paint, colors")]) as provider:
        theirs = {"PATCHSHOT_BASE_URL": provider.base_url, "PATCHSHOT_MODEL": "scripted"}
        issue = tmp_path / "issue.md"
        issue.write_text(f"# {query}\n\nIt is not what was asked for.\n")
        named = ("--problem", str(issue), "--repo", str(repository))
        told = run_agent(
            "context", *named, "--json", home=tmp_path, PATCHSHOT_EXPAND="llm", **theirs
        )
        assert told.returncode == 0, told.stderr
        assert len(provider.chats) == 1
        assert json.loads(told.stdout)["pieces"][0]["path"] == "shop/colors.py"
        found = search(tmp_path, repository, query, "--expand", "llm", **theirs)
        assert found["results"][0]["path"] == "shop/colors.py"
        solved = run_agent(
            "solve", *named, "--no-tests", "--no-keep", "--no-iterative",
            home=tmp_path, **theirs,
        )  # fmt: skip
    assert solved.returncode == 4, solved.stderr
    assert "paint" in provider.chats[-1].prompt
    assert "paint colors" not in provider.chats[-1].prompt  # the words rank, and no more


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
