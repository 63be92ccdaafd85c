"""Which messages become issues, and what of them."""

from __future__ import annotations

import pytest

from benchmarks.instances.messages import describe

FAULT = (
    "Since the last release a shop without any item is shown as closed, and asking for its first "
    "item raises an IndexError instead of returning None."
)


def test_a_described_fault_is_an_issue() -> None:
    assert describe(f"Fix empty shops\n\n{FAULT}\n", "shop") == f"Fix empty shops\n\n{FAULT}\n"


def test_references_trailers_and_work_on_the_change_are_left_out() -> None:
    raw = (
        f"Fix empty shops (#123)\n\n{FAULT}\n\nThis was broken by 1a2b3c4d5e in gh-77.\n"
        "Fixes #12, closes owner/name#13.\n* add tests\n* address review comments\n"
        "Pull-request: https://example.org/owner/name/pull/9\nChange-Id: I99\n"
        "Signed-off-by: A <a@example.org>\n"
    )

    expected = f"Fix empty shops\n\n{FAULT}\n\nThis was broken by [elsewhere] in [elsewhere].\n"
    assert describe(raw, "shop") == expected


@pytest.mark.parametrize(
    "raw",
    [
        "Fix empty shops\n",  # a headline
        "Fix empty shops\n\nHandle the empty case too.\n",  # a place, no fault
        "Fix empty shops\n\n* raise an error instead\n* use a type\n* do not check\n* simplify\n",
        f"Bump version to 1.2.3\n\n{FAULT}\n",
        "Add shops by night\n\n" + "Shops may now be opened at night by whoever has a key. " * 3,
    ],
)
def test_what_tells_no_fault_is_no_issue(raw: str) -> None:
    assert describe(raw, "shop") is None


def test_what_follows_a_rule_is_the_bots() -> None:
    text = describe(f"Fix empty shops\n\n{FAULT}\n\n---------\n\nCo-authored: by x\n", "shop")

    assert text == f"Fix empty shops\n\n{FAULT}\n"
