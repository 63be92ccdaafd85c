"""Edits that replace a whole function by its name."""

from __future__ import annotations

import json

import pytest

from agent.patching import apply_proposal, parse_reply
from agent.types import AppliedPatch, ApplyFailure, MatchTier, PatchProposal
from tests.support.memory_files import MemoryFiles

PYTHON = """import os


class Way:
    # The way as a number.
    @property
    def east(self):
        return 1

    def west(self):
        return 2

    def far(self):
        return 4


class Other:
    def far(self):
        return 5


def west():
    return 3
"""
SCRIPT = "function one() {\n  return 1;\n}\n\nclass A {\n  two() {\n    return 2;\n  }\n}\n"
GO = "package a\n\n// One is one.\nfunc One() int {\n\treturn 1\n}\n"


def applied(
    path: str,
    text: str,
    symbol: str,
    new: str,
    shown: dict[str, list[tuple[int, int]]] | None = None,
) -> AppliedPatch | ApplyFailure:
    edit = {"path": path, "symbol": symbol, "replace": new}
    proposal = parse_reply(json.dumps({"edits": [edit]}))
    assert isinstance(proposal, PatchProposal), proposal
    return apply_proposal(proposal, MemoryFiles({path: text}), shown=shown)


def after(done: AppliedPatch | ApplyFailure) -> str:
    assert isinstance(done, AppliedPatch), done
    assert [edit.tier for edit in done.edits] == [MatchTier.SYMBOL]
    data = done.changes[0].after
    assert data is not None
    return data.decode()


@pytest.mark.parametrize(
    ("symbol", "new", "old"),
    [
        ("Way.west", "    def west(self):\n        return 9\n", "        return 2\n"),
        ("Way.west", "def west(self):\n    return 9", "        return 2\n"),
        ("Way::west()", "def west(self):\n    return 9\n\n\n", "        return 2\n"),
        ("east", "@property\ndef east(self):\n    return 9", "        return 1\n"),
        ("west", "def west():\n    return 9\n", "    return 3\n"),
    ],
)
def test_only_the_function_changes(symbol: str, new: str, old: str) -> None:
    wanted = PYTHON.replace(old, old[: old.index("r")] + "return 9\n")
    assert after(applied("a.py", PYTHON, symbol, new)) == wanted


def test_other_languages_and_the_comment_above() -> None:
    new = "func One() int {\n\treturn 11\n}"
    assert after(applied("a.go", GO, "One", new)) == GO.replace("return 1", "return 11")
    new = "// One is eleven.\nfunc One() int {\n\treturn 11\n}"
    assert after(applied("a.go", GO, "One", new)) == f"package a\n\n{new}\n"
    new = "two() {\n  return 22;\n}"
    assert after(applied("a.js", SCRIPT, "A.two", new)) == SCRIPT.replace("2;", "22;")


@pytest.mark.parametrize(
    ("symbol", "new", "kind", "words"),
    [
        ("far", "def far(self): pass", "ambiguous", "defined 2 times (Way.far at line 13"),
        ("north", "def north(): pass", "no-match", "it has Other.far, Way.east"),
        ("Way", "class Way: pass", "no-match", "no function Way"),
        ("west", "def west(:", "broken-syntax", "no longer parse"),
    ],
)
def test_why_it_is_refused(symbol: str, new: str, kind: str, words: str) -> None:
    done = applied("a.py", PYTHON, symbol, new)
    assert isinstance(done, ApplyFailure)
    (failure,) = done.failures
    assert failure.kind == kind
    assert words in failure.reason


def test_a_function_that_was_not_wholly_shown_is_not_replaced() -> None:
    new = "def west():\n    return 9\n"
    done = applied("a.py", PYTHON, "west", new, {"a.py": [(1, 22)]})
    assert isinstance(done, ApplyFailure)
    assert done.failures[0].kind == "not-shown"
    assert "return 9" in after(applied("a.py", PYTHON, "west", new, {"a.py": [(22, 23)]}))


@pytest.mark.parametrize(("holder", "refused"), [("return 3", False), ("return 5", True)])
def test_only_the_old_function_excuses_what_hides_code(holder: str, refused: bool) -> None:
    text = PYTHON.replace(holder, f"{holder}  # \u202e")
    done = applied("a.py", text, "west", "def west():\n    return 9  # \u202e\n")
    assert (isinstance(done, ApplyFailure) and done.failures[0].kind == "not-text") is refused
