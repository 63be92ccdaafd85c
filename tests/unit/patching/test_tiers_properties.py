"""For any file, an edit changes nothing outside of it, or is refused."""

from __future__ import annotations

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


def _apply(
    before: bytes | str, search: str, replace: str, path: str = "a.js"
) -> AppliedPatch | ApplyFailure:
    proposal = PatchProposal((SearchReplace(path, search, replace),))
    return apply_proposal(proposal, MemoryFiles({path: before}))


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
