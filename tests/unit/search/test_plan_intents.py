"""What an issue asks for, cut into sentences; plans hold each query once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.search.plan_search import (
    MAX_INTENT_CHARS,
    MAX_SENTENCES,
    intent_of,
    intents_in,
    key_of,
    plan_of,
    sentences,
)
from agent.types import Problem
from tests.support.planning import PROBLEM


def test_an_issue_gives_title_error_frame_and_sentences() -> None:
    found = [(i.origin, i.text) for i in intents_in(PROBLEM)]
    assert found == [
        ("title", "Find the code behind: Coupon discount is not in the total"),
        ("error", "Find what raises: AttributeError: no discount on coupon"),
        ("frame", "Look where the error passed: total in cart.py"),
        ("name", "Look at render_receipt"),
        ("name", "Look at cart.py"),
        ("name", "Look at AttributeError"),
        ("sentence", "Find what this says: The cart total ignores the coupon discount."),
        (
            "sentence",
            "Find what this says: The receipt mail shows the wrong total too, because "
            "render_receipt prints the old one.",
        ),
        ("sentence", 'Find what this says: File "shop/cart.py", line 9, in total'),
    ]


def test_marks_links_and_empty_phrases_are_left_out() -> None:
    text = "## Bug\n- [x] I have read [the manual](http://x.y/z)\n> Thanks!\nSee http://a.b/c\n\n"
    assert sentences(text) == ["I have read the manual"]


def test_a_long_paragraph_is_cut_at_a_word() -> None:
    cut = intent_of("word " * 100, "sentence").query
    assert len(cut) <= MAX_INTENT_CHARS
    assert cut.endswith("word")


def test_a_plan_holds_each_query_once_at_its_first_place() -> None:
    one, other = intent_of("a", "name"), intent_of("b", "name")
    assert plan_of((one, other, intent_of("a", "sentence"))) == (one, other)
    assert key_of(plan_of((one, other))) == ("a", "b")


@given(st.text(max_size=300), st.text(max_size=2000))
def test_any_text_gives_bounded_intents(title: str, body: str) -> None:
    found = intents_in(Problem(title, body))
    assert len({i.query for i in found}) == len(found)
    assert all(len(i.query) <= MAX_INTENT_CHARS for i in found)
    assert sum(i.origin == "sentence" for i in found) <= MAX_SENTENCES
