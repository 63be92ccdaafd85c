"""What each lenient tier tolerates, what it writes, and what it refuses."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from agent.patching import apply_proposal
from agent.types import AppliedPatch, ApplyFailure, PatchProposal, SearchReplace
from tests.support.memory_files import MemoryFiles

SOURCE = '''\
import os


class Cart:
    """A cart."""

    def add(self, item, count=1):
        if count < 1:
            raise ValueError("count")
        self.items.append((item, count))

    def total(self, prices):
        result = 0
        for item, count in self.items:
            result += prices[item] * count
        return result
'''


def find(
    text: str, search: str, replace: str, shown: Sequence[tuple[int, int]] = (), **hints: Any
) -> AppliedPatch | ApplyFailure:
    proposal = PatchProposal((SearchReplace("a.txt", search, replace, **hints),))
    return apply_proposal(proposal, MemoryFiles({"a.txt": text}), shown={"a.txt": shown})


def applied(text: str, search: str, replace: str, **hints: Any) -> tuple[str, str]:
    """Return the tier and the new text."""
    outcome = find(text, search, replace, **hints)
    assert isinstance(outcome, AppliedPatch), outcome
    return outcome.edits[0].tier.value, (outcome.changes[0].after or b"").decode()


def refused(text: str, search: str, replace: str, **hints: Any) -> str:
    outcome = find(text, search, replace, **hints)
    assert isinstance(outcome, ApplyFailure), outcome
    return outcome.failures[0].kind


TOTAL = "    def total(self, prices):\n        result = 0\n"
FLOAT = "    def total(self, prices):\n        result = 0.0\n"
FIXED = SOURCE.replace("result = 0\n", "result = 0.0\n")


@pytest.mark.parametrize(
    ("tier", "change"),
    [
        ("exact", lambda s: s),
        ("trailing-space", lambda s: s.replace(":\n", ":  \n")),
        ("white-space", lambda s: s.replace("    def", "def").replace("        res", "    res")),
        ("white-space", lambda s: "".join(f"  {line}\n" for line in s.splitlines())),
        ("white-space", lambda s: s.replace("    ", "\t")),
        ("white-space", lambda s: s.replace("        result", "      result")),
        ("white-space", lambda s: s.replace("self, prices", "self,prices")),
        ("line-numbers", lambda s: numbered(s, "{n}: ")),
        ("line-numbers", lambda s: numbered(s, "{n:>5} | ")),
        ("line-numbers", lambda s: numbered(s, "{n:>6}\t")),
        ("line-numbers", lambda s: numbered(s, "L{n} ")),
        ("line-numbers", lambda s: numbered(s, "{n} ")),
        ("blank-lines", lambda s: f"\n\n\n{s}\n\n"),
    ],
)
def test_what_a_tier_forgives_leaves_no_trace(tier: str, change: object) -> None:
    search, replace = change(TOTAL), change(FLOAT)  # type: ignore[operator]
    assert applied(SOURCE, search, replace) == (tier, FIXED)


def numbered(text: str, form: str) -> str:
    return "".join(form.format(n=12 + k) + line + "\n" for k, line in enumerate(text.splitlines()))


def test_a_numbered_blank_line_at_the_end_is_not_lost() -> None:
    search = "1: a = 1\n2: b = 2\n3: "
    assert applied("a = 1\nb = 2\n\nc = 3\n", search, "a = 1\nb = 5\n") == (
        "line-numbers",
        "a = 1\nb = 5\n\nc = 3\n",
    )


def test_kept_lines_keep_their_own_trailing_space() -> None:
    text = "a = 1   \nb = 2\t\nc = 3\n"
    assert applied(text, "a = 1\nb = 2\nc = 3\n", "a = 1\nb = 5\nc = 3\n") == (
        "trailing-space",
        "a = 1   \nb = 5\nc = 3\n",
    )


def test_a_change_of_trailing_space_is_a_change() -> None:
    assert applied("a = 1  \nb\t\n", "a = 1  \nb\n", "a = 1\nb\n") == (
        "trailing-space",
        "a = 1\nb\t\n",
    )


def test_new_lines_are_indented_as_the_file_is() -> None:
    search = "if count < 1:\n    raise ValueError('count')\n".replace("'", '"')
    replace = "if count < 1:\n    if strict:\n        raise ValueError(count)\n    return\n"
    tier, text = applied(SOURCE, search, replace)
    assert tier == "white-space"
    assert "        if count < 1:\n            if strict:\n                raise" in text
    assert "\n            return\n        self.items" in text


def test_typographic_characters_that_the_file_lacks_are_read_as_plain_ones() -> None:
    text = 'print("a - b")\nsay(“now”)\n'
    assert applied(text, 'print("a – b")\n', 'print("a – c")\n') == (
        "punctuation",
        text.replace("a - b", "a - c"),
    )
    assert refused(text, 'say("now")\n', 'say("later")\n') == "no-match"


@pytest.mark.parametrize(
    "dots", ["...", "    ...", "        # ...", "# ... existing code ...", "…"]
)
def test_left_out_lines_stay(dots: str) -> None:
    search = f"    def total(self, prices):\n{dots}\n        return result\n"
    replace = f"    def total(self, prices):\n{dots}\n        return round(result, 2)\n"
    assert applied(SOURCE, search, replace) == (
        "elision",
        SOURCE.replace("return result", "return round(result, 2)"),
    )


def test_elisions_must_agree() -> None:
    search = "    def total(self, prices):\n...\n        return result\n"
    assert refused(SOURCE, search, "    def total(self):\n        return 0\n") == "no-match"
    assert refused(SOURCE, search, "...\n    def total(self):\n...\n    x\n") == "no-match"


def test_a_part_of_an_elision_that_occurs_twice_is_refused() -> None:
    text = "def a():\n    x = 1\n    return x\n\n\ndef b():\n    y = 1\n    return x\n"
    search, replace = "def a():\n    ...\n    return x\n", "def a():\n    ...\n    return -x\n"
    assert refused(text, search, replace) == "no-match"


@pytest.mark.parametrize(
    "note",
    [
        "# ... existing code ...",
        "# rest of the function",
        "// ... rest unchanged",
        "# ... same ...",
    ],
)
def test_a_replacement_that_leaves_out_code_is_refused(note: str) -> None:
    outcome = find(SOURCE, TOTAL, f"    def total(self, prices):\n        {note}\n")
    assert isinstance(outcome, ApplyFailure)
    assert "leaves code out" in outcome.reason


@pytest.mark.parametrize(
    "line", ["...", "# remaining time", "# rest is handled above", "x = [...]"]
)
def test_what_only_looks_left_out_is_written(line: str) -> None:
    assert applied(SOURCE, TOTAL, f"{TOTAL}        {line}\n")[0] == "exact"


def test_blank_lines_away_from_the_change_do_not_count() -> None:
    text = "a = 1\n\nb = 2\nc = 3\nd = 4\n"
    assert applied(text, "a = 1\nb = 2\nc = 3\nd = 4\n", "a = 1\nb = 2\nc = 5\nd = 4\n") == (
        "blank-lines",
        "a = 1\n\nb = 2\nc = 5\nd = 4\n",
    )


def test_a_new_line_beside_a_blank_one_that_was_not_quoted_has_no_sure_place() -> None:
    assert refused("a = 1\n\nb = 2\n", "a = 1\nb = 2\n", "a = 1\nx = 0\nb = 2\n") == "no-match"


LONG = "".join(f"    value_{k} = compute({k}, offset={k * 7})\n" for k in range(12))


def test_a_misquoted_context_line_is_forgiven() -> None:
    search = "".join(LONG.splitlines(keepends=True)[2:9])
    replace = search.replace("compute(6,", "compute(66,")
    slip = ("value_3 = compute", "value_3 = computed")
    assert applied(LONG, search.replace(*slip), replace.replace(*slip)) == (
        "near",
        LONG.replace("compute(6,", "compute(66,"),
    )


def test_a_change_merges_with_a_misquoted_line_or_is_refused() -> None:
    search = "".join(LONG.splitlines(keepends=True)[2:9])
    fixed = LONG.replace("compute(6,", "compute(66,")
    wrong = search.replace("compute(6,", "computed(6,")
    for replace in (search.replace("compute(6,", "compute(66,"), wrong.replace("(6,", "(66,")):
        assert applied(LONG, wrong, replace) == ("near", fixed)
    for clash in ("calculated(6,", "computed[6,"):
        assert refused(LONG, wrong, wrong.replace("computed(6,", clash)) == "no-match"


def test_a_rival_place_is_refused() -> None:
    search = "".join(LONG.splitlines(keepends=True)[2:9])
    replace = search.replace("compute(6,", "compute(66,")
    slip = ("value_3 = compute", "value_3 = computed")
    twice = LONG + "# again\n" + LONG.replace("offset=14", "offset=15")
    assert refused(twice, search.replace(*slip), replace.replace(*slip)) in (
        "no-match",
        "ambiguous",
    )


def test_short_texts_are_not_matched_by_likeness() -> None:
    assert refused(SOURCE, "    def totals(self):\n        result = 0\n", "x\n") == "no-match"


TWINS = """\
class A:
    def run(self):
        return 1


class B:
    def run(self):
        return 1
"""


def at(text: str, search: str, **hints: Any) -> int | None:
    outcome = find(text, search, "new\n", **hints)
    return outcome.edits[0].line if isinstance(outcome, AppliedPatch) else None


def test_what_was_shown_decides() -> None:
    assert at(TWINS, "        return 1\n", shown=((5, 8),)) == 8
    assert at(TWINS, "        return 1\n", shown=((1, 8),)) is None
    assert at(TWINS, "        return 1\n", shown=((1, 2),)) is None


def test_a_stricter_tier_with_several_places_ends_the_search() -> None:
    text = "  x = 1\n  y = 2\n\tx = 1\n\ty = 2\nx = 1 \ny = 2\nx = 1 \ny = 2\n"
    outcome = find(text, "x = 1\ny = 2\n", "z\n")
    assert isinstance(outcome, ApplyFailure)
    assert "the search text occurs 2 times, at lines 5, 7" in outcome.reason


@pytest.mark.parametrize(
    "slip",
    [
        lambda s: s + "x",
        lambda s: s.replace("\n", " \n"),
        lambda s: s.replace("    ", ""),
        lambda s: s.replace("    ", "\t"),
        lambda s: numbered(s, "{n}: "),
        lambda s: s.replace("value_11", "valu_11"),
        lambda s: s.replace("value", "other"),
    ],
)
@pytest.mark.parametrize("repeated", [False, True])
def test_a_huge_file_takes_less_than_two_seconds(slip: object, repeated: bool) -> None:
    lines = [f"    value_{k % 5000} = compute({k}, {k % 7})\n" for k in range(100_000)]
    if repeated:
        lines = ["    return None\n"] * 100_000
    text = "".join(lines)
    search = slip("".join(lines[40_010:40_060]))  # type: ignore[operator]
    started = time.process_time()
    find(text, search, search.replace("compute", "c") + "z\n")
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("search", "replace", "end", "repairs"),
    [
        ("b = 2\n", "b = 3", "b = 3\nc = 4\n", ["final-newline"]),
        ("b = 2\n", "", "a = 1\nc = 4\n", []),
        ("b = 2", "b = 3", "b = 3\nc = 4\n", []),
        ("c = 4\n", "c = 5", "c = 5", []),
    ],
)
def test_a_lost_line_feed_is_put_back_and_reported(
    search: str, replace: str, end: str, repairs: list[str]
) -> None:
    outcome = find("a = 1\nb = 2\nc = 4\n", search, replace)
    assert isinstance(outcome, AppliedPatch)
    assert (outcome.changes[0].after or b"").decode().endswith(end)
    assert [repair.name for repair in outcome.repairs] == repairs
