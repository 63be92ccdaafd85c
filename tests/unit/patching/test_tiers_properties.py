"""For any file, an edit changes nothing outside of it, or is refused."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.patching import apply_proposal
from agent.types import (
    AppliedPatch,
    ApplyFailure,
    PatchProposal,
    SearchReplace,
)
from tests.support.memory_files import MemoryFiles

_WORDS = st.text("abcdefgh_", min_size=3, max_size=8)


@st.composite
def _sources(draw: st.DrawFn, *, least: int = 6) -> list[str]:
    """Return different lines of code; each has its number."""
    shapes = draw(st.lists(st.tuples(st.integers(0, 3), _WORDS), min_size=least, max_size=14))
    return [
        "    " * depth + f"{word}_{number * 137} = call('{word}', \"{number}\") - {number}"
        for number, (depth, word) in enumerate(shapes)
    ]


@st.composite
def _edits(draw: st.DrawFn, lines: Sequence[str], *, least: int = 3) -> tuple[int, int, list[str]]:
    """Return a region and its replacement, in which one or two lines differ."""
    start = draw(st.integers(0, len(lines) - least))
    end = draw(st.integers(start + least, len(lines)))
    new = list(lines[start:end])
    at = draw(st.integers(1, len(new) - 1))
    new[at] = new[at].replace("call(", "done(")
    if draw(st.booleans()):
        new.insert(at, new[at].replace("done(", "more("))
    return start, end, new


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _apply(
    before: bytes | str, search: str, replace: str, path: str = "a.js"
) -> AppliedPatch | ApplyFailure:
    proposal = PatchProposal((SearchReplace(path, search, replace),))
    return apply_proposal(proposal, MemoryFiles({path: before}))


@given(data=st.data(), lines=_sources(least=8))
def test_a_misquoted_line_beside_the_change_is_forgiven_or_refused(
    data: st.DataObject, lines: list[str]
) -> None:
    start, end, new = data.draw(_edits(lines, least=6))
    old = lines[start:end]
    wrong = data.draw(st.sampled_from([k for k, line in enumerate(old) if line in new]))
    slip = {old[wrong]: old[wrong].replace("call(", "cell(")}
    outcome = _apply(
        _joined(lines),
        _joined([slip.get(line, line) for line in old]),
        _joined([slip.get(line, line) for line in new]),
    )
    if isinstance(outcome, AppliedPatch):
        assert outcome.changes[0].after == _joined([*lines[:start], *new, *lines[end:]]).encode()


_PIECES = st.text("ab \t\n.12:'’", max_size=12)


@given(_PIECES, _PIECES, _PIECES, st.sampled_from(["a.js", "a.py"]))
@settings(max_examples=300)
def test_a_refusal_is_the_same_again_and_an_application_is_local(
    text: str, search: str, replace: str, path: str
) -> None:
    first = _apply(text, search, replace, path)
    assert _apply(text, search, replace, path) == first
    if isinstance(first, ApplyFailure):
        assert first.failures[0].reason
        return
    [change] = first.changes
    assert change.before == text.encode()
    assert change.after != change.before
