"""The prompt tells the model why its edits could not be applied."""

from __future__ import annotations

from agent.patching import apply_proposal
from agent.run.attempts import Attempt
from agent.run.prompting import describe_failure
from agent.types import ApplyFailure, Edit, PatchProposal, SearchReplace
from tests.support.memory_files import MemoryFiles
from tests.support.tokens import ApproximateCounter

SOURCE = """\
def first(values):
    for value in values:
        if value:
            return value
    return None


def last(values):
    for value in reversed(values):
        if value:
            return value
    return None
"""


def described(*edits: Edit, source: str = SOURCE) -> str:
    proposal = PatchProposal(edits)
    failure = apply_proposal(proposal, MemoryFiles({"m.py": source}))
    assert isinstance(failure, ApplyFailure)
    attempt = Attempt("one-shot", proposal=proposal, apply_failure=failure)
    return describe_failure(attempt, ApproximateCounter())


def test_each_failure_names_the_edit_the_place_and_the_difference() -> None:
    text = described(
        SearchReplace("m.py", "    return None\n", "    return 0\n"),
        SearchReplace("m.py", "def last(values, n):\n    for value in values:\n", "x\n"),
        SearchReplace("n.py", "anything\n", "x\n"),
    )
    assert (
        text
        == """\
edit 1 (m.py): the search text occurs 2 times, at lines 5, 12; lengthen it by neighbouring lines \
until it is unique, or add "line"
its search text begins:     return None
one of the places, with its neighbours: m.py, lines 3-7:
```
        if value:
            return value
    return None


```
one of the places, with its neighbours: m.py, lines 10-12:
```
        if value:
            return value
    return None
```

edit 2 (m.py): the search text is not in the file; line 1 of the search text: expected \
"def last(values, n):", file has "def first(values):" at line 1
its search text begins: def last(values, n):
closest text in m.py, lines 1-2 (91% alike):
```
def first(values):
    for value in values:
```
closest text in m.py, lines 8-9 (87% alike):
```
def last(values):
    for value in reversed(values):
```

edit 3 (n.py): there is no such file; did you mean m.py?
its search text begins: anything"""
    )
