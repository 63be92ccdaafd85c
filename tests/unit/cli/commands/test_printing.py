from __future__ import annotations

import json

import pytest

from agent.cli.commands.search import finding_as_json, render_findings
from agent.search.passages import Label, Passage, PoolHit
from agent.types import Reason

DOCUMENT = Passage(Label.DOCS, "Totals", "The total.", "docs/a.md", 3, 9, tags=("section",))
HUNK = Passage(Label.HISTORY, "Fix it", "The total.", "a.py", 1, 2, origin="f" * 40)
FINDING = PoolHit(
    DOCUMENT, 0.98, (Reason("words", 0.5, "place 2"),), (HUNK,), 0.714, 1, 0.43, 0.714, "cosine"
)
KEY = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def test_a_line_says_score_corpus_and_place() -> None:
    code = PoolHit(Passage(Label.CODE, "f", "def f", "a.py", 1, 2, "f"), 0.9)
    assert render_findings([code, FINDING], explain=False) == (
        "  1  name 1.00    [code]     a.py:1-2 f\n"
        "  2  cosine 0.71  [docs]     docs/a.md:3-9  Totals  (+1 alike)\n"
    )


def test_explained_lines_say_which_search_and_what_else() -> None:
    lines = render_findings([FINDING], explain=True).splitlines()
    assert lines[1].strip() == "place 1 in its corpus, from"
    assert lines[2].strip() == "+0.500  words        place 2"
    assert lines[3].strip() == "also     [history] a.py:1-2 @ ffffffffffff"


@pytest.mark.parametrize("corpus", list(Label))
def test_secrets_of_every_corpus_are_masked_where_they_are_printed(corpus: Label) -> None:
    passage = Passage(corpus, f"uses {KEY}", f'token = "{KEY}"', "a.py", 1, 1, tags=("window",))
    reason = Reason("history", 1.0, f"commit: {KEY}")
    finding = PoolHit(passage, 1.0, (reason,), (passage,), rank=1)
    assert KEY not in json.dumps(finding_as_json(finding))
    assert KEY not in render_findings([finding], explain=True)


def test_a_repository_s_words_cannot_steer_the_terminal() -> None:
    evil = PoolHit(Passage(Label.DOCS, "a\x1b[2Jb", "x", "a.md"), 1.0)
    assert "\x1b" not in render_findings([evil], explain=True)
