from __future__ import annotations

import asyncio
import threading

import pytest

from agent.commands.hits import finding_as_json, render_findings
from agent.corpora.cancelling import in_thread
from agent.corpora.passages import Finding, Label, Passage
from agent.types import Reason

DOCUMENT = Passage(Label.DOCS, "Totals", "The total.", "docs/a.md", 3, 9, tags=("section",))
HUNK = Passage(Label.HISTORY, "Fix it", "The total.", "a.py", 1, 2, origin="f" * 40)
FINDING = Finding(DOCUMENT, 0.98, (Reason("words", 0.5, "place 2"),), (HUNK,), 0.714)


def test_a_line_says_corpus_place_score_and_similarity() -> None:
    code = Finding(Passage(Label.CODE, "f", "def f", "a.py", 1, 2, "f"), 1.0, similarity=0.5)
    assert render_findings([code, FINDING], explain=False, width=None) == (
        "  1  1.000  0.50  [code]     a.py:1-2 f\n"
        "  2  0.980  0.71  [docs]     docs/a.md:3-9  Totals  (+1 alike)\n"
    )


def test_explained_lines_say_which_search_and_what_else() -> None:
    lines = render_findings([FINDING], explain=True, width=60).splitlines()
    assert lines[1].strip() == "+0.500  words        place 2"
    assert lines[2].strip() == "also     [history] a.py:1-2 @ ffffffffffff"
    assert all(len(line) <= 60 for line in lines)


def test_a_repository_s_words_cannot_steer_the_terminal() -> None:
    evil = Finding(Passage(Label.DOCS, "a\x1b[2Jb", "x", "a.md"), 1.0)
    assert "\x1b" not in render_findings([evil], explain=True, width=None)


def test_json_holds_everything() -> None:
    found = finding_as_json(FINDING)
    assert found["reasons"] == [{"feature": "words", "value": 0.5, "note": "place 2"}]
    assert found["same"][0]["origin"] == "f" * 40
    assert {k: found[k] for k in ("corpus", "path", "start", "end", "score", "similarity")} == {
        "corpus": "docs",
        "path": "docs/a.md",
        "start": 3,
        "end": 9,
        "score": 0.98,
        "similarity": 0.714,
    }


def test_work_in_a_thread_learns_that_nobody_waits() -> None:
    told = threading.Event()

    def work(cancel: threading.Event) -> None:
        if cancel.wait(20):
            told.set()

    async def give_up() -> None:
        task = asyncio.ensure_future(in_thread(work))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(give_up())
    assert told.wait(5)
