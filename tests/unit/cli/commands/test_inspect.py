"""`agent search --explain`, `--without` and `agent index`, as far as they need no subprocess."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from agent.cli.commands.index import index_command as index
from agent.cli.commands.search import render_findings
from agent.cli.commands.search import search_command as search
from agent.search import Label, Passage, PoolHit
from agent.types import Reason

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]

FILES = {
    "shop/cart.py": "class Cart:\n    def total(self):\n        return sum(self.prices[1:])\n",
    "shop/paint.py": "def paint(colour):\n    return colour\n",
}
CODE = Passage(Label.CODE, "C.f", "def f(): ...", "a/b.py", 3, 9, "C.f", tags=("method",))
HIT = PoolHit(
    CODE,
    1.0,
    (
        Reason("lexical", 2.0, "1 of 2,412 by words in common"),
        Reason("title", 0.02, ""),
        Reason("prose", -0.01, "4 of 9"),
        Reason("structure", -0.51),
    ),
    value=1.5,
    score_name="ranker",
)


def test_an_explanation_has_every_part() -> None:
    assert render_findings([HIT], explain=True, labelled=False).splitlines() == [
        "  1  ranker 1.50  a/b.py:3-9 C.f",
        "     score 1.500, the sum of",
        "      +2.000  lexical      1 of 2,412 by words in common",
        "      +0.020  title",
        "      -0.010  prose        4 of 9",
        "      -0.510  structure",
    ]


def test_lines_hold_no_control_characters() -> None:
    reason = Reason("history", 1.0, "changed by 12ab: \x1b[31mred\nnext")
    whole = render_findings([PoolHit(CODE, 1.0, (reason,))], explain=True)
    assert whole.splitlines()[2].endswith("12ab: \ufffd[31mred\ufffdnext")


# ------------------------------------------------------------------------------------- commands


@pytest.fixture
def target(
    make_repository: MakeRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    monkeypatch.setenv("PATCHSHOT_CACHE_DIR", str(tmp_path / "cache"))
    return make_repository(FILES)


def run(command: click.Command, target: Path, *options: str) -> Result:
    return CliRunner().invoke(command, ["--repo", str(target), "--embed", "off", *options])


def test_a_problem_in_other_words_than_the_code_is_told(target: Path) -> None:
    said = "no word of the problem occurs in the code: ordered by "
    done = run(search, target, "文件 程序 崩溃", "--explain")
    assert (done.exit_code, done.stderr.count(said)) == (0, 1)
    assert "by words in common" not in done.stdout
    assert said not in run(search, target, "cart total").stderr


def test_indexing_ahead_saves_the_search_its_work(target: Path) -> None:
    made = json.loads(run(index, target, "--json").stdout)
    assert (made["files"], made["built"], made["commits"]) == (2, 2, 1)
    said = run(search, target, "cart total").stderr
    assert "index:" not in said  # no file is cut again
    assert "history:" not in said  # and no commit read again
