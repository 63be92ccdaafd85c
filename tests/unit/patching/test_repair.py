"""Slips are repaired without a second call only if the reply leaves one way to do so."""

from __future__ import annotations

from typing import Any

import pytest

from agent.errors import ConfigurationError
from agent.patching.applying import apply_proposal
from agent.patching.missing_imports import missing_imports
from agent.patching.repair import REPAIRS, switched_off
from agent.types import AppliedPatch, ApplyFailure, Edit, PatchProposal, Repair, SearchReplace
from tests.support.memory_files import MemoryFiles

SOURCE = '''\
"""A module."""

from __future__ import annotations

import os


def first(values):
    for value in values:
        if value:
            return value
    return None
'''


def run(*edits: Edit, thought: str = "", source: str = SOURCE, **options: Any) -> AppliedPatch:
    proposal = PatchProposal(edits, thought)
    outcome = apply_proposal(proposal, MemoryFiles({"m.py": source}), **options)
    assert isinstance(outcome, AppliedPatch), outcome
    return outcome


def after(patch: AppliedPatch) -> str:
    return (patch.changes[0].after or b"").decode()


def change(search: str, replace: str) -> SearchReplace:
    return SearchReplace("m.py", search, replace)


# ----------------------------------------------------------------------------------- final newline


def test_a_lost_line_feed_is_put_back_and_reported() -> None:
    patch = run(change("    return None\n", "    return 0"), source=SOURCE + "x = 1\n")
    assert after(patch).endswith("    return 0\nx = 1\n")
    assert [(r.name, r.saved, r.edit) for r in patch.repairs] == [
        ("final-newline", "broken-syntax", 0)
    ]


@pytest.mark.parametrize(
    ("search", "replace", "end"),
    [
        ("    return None\n", "", "            return value\n"),
        ("    return None\n", "    return 0", "    return 0"),
        ("    return None", "    return 0", "    return 0\n"),
    ],
)
def test_no_line_feed_is_added_where_none_is_lost(search: str, replace: str, end: str) -> None:
    patch = run(change(search, replace))
    assert after(patch).endswith(end)
    assert patch.repairs == ()


# ------------------------------------------------------------------------------------- indentation


@pytest.mark.parametrize(
    "replace",
    [
        "    if value is not None:\n        return value\n",
        "if value is not None:\n    return value\n",
    ],
)
def test_a_replacement_is_moved_to_where_its_search_text_stands(replace: str) -> None:
    search = "        if value:\n            return value\n"
    patch = run(change(search, replace))
    assert after(patch) == SOURCE.replace("if value:", "if value is not None:")
    assert [repair.name for repair in patch.repairs] == ["indentation"]


def test_new_lines_hang_below_a_line_that_was_quoted_without_its_indentation() -> None:
    patch = run(change("return value\n", "print(value)\nreturn value\n"))
    assert "            print(value)\n            return value\n" in after(patch)
    assert [repair.name for repair in patch.repairs] == ["indentation"]


def test_new_lines_that_bring_their_indentation_stay() -> None:
    patch = run(change("return value\n", "print(value)\n            return value\n"))
    assert "            print(value)\n            return value\n" in after(patch)
    assert patch.repairs == ()


def test_a_definition_at_the_margin_stays_there() -> None:
    patch = run(change("return None\n", "return None\n\n\ndef second():\n    pass\n"))
    assert after(patch).endswith("    return None\n\n\ndef second():\n    pass\n")
    assert patch.repairs == ()


def test_what_parses_as_written_is_left_as_written() -> None:
    patch = run(change("        if value:\n            return value\n", "        pass\n"))
    assert "    for value in values:\n        pass\n    return None\n" in after(patch)
    assert patch.repairs == ()


# ---------------------------------------------------------------------------------- missing import


@pytest.mark.parametrize(
    ("thought", "statement"),
    [
        ("I add `import math` at the top.", "import math"),
        ("We need from decimal import Decimal as math here", "from decimal import Decimal as math"),
        ("use `from lib.sub import math, other`", "from lib.sub import math"),
    ],
)
def test_an_import_that_the_reply_speaks_of_is_added(thought: str, statement: str) -> None:
    patch = run(change("return value", "return math.floor(value)"), thought=thought)
    assert after(patch).startswith(
        f'"""A module."""\n\nfrom __future__ import annotations\n\nimport os\n{statement}\n\n\ndef'
    )
    assert patch.repairs == (Repair("missing-import", f"m.py: {statement}", "undefined-name"),)


@pytest.mark.parametrize(
    ("thought", "new"),
    [
        ("", "return math.floor(value)"),  # the reply does not speak of it
        ("import math", "return value + 1"),  # not used
        ("import os", "return os.path"),  # there already
        ("import math or from cmath import math", "return math.pi"),  # two ways
        ("import the module math first", "return math.pi"),
        ("import math", "return [math for math in value]"),  # bound in the code
    ],
)
def test_no_import_is_guessed(thought: str, new: str) -> None:
    assert run(change("return value", new), thought=thought).repairs == ()


def test_a_name_that_was_undefined_before_is_left_alone() -> None:
    source = SOURCE.replace("return None", "return math")
    edit = change("return value", "return math.pi")
    assert run(edit, thought="import math", source=source).repairs == ()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = 1\n", "import math\nx = math\n"),
        (
            "#!/bin/sh\n# coding: utf-8\nx = 1\n",
            "#!/bin/sh\n# coding: utf-8\nimport math\nx = math\n",
        ),
        ('"""Doc."""\nx = 1\n', '"""Doc."""\nimport math\nx = math\n'),
        ("import a\nx = 1\nimport b\n", "import a\nimport math\nx = math\nimport b\n"),
        (
            "from a import (\n    b,\n)\nx = 1\n",
            "from a import (\n    b,\n)\nimport math\nx = math\n",
        ),
    ],
)
def test_where_an_import_goes(source: str, expected: str) -> None:
    found = missing_imports(source, source.replace("x = 1", "x = math"), {"math": "import math"})
    assert found == (expected, ["import math"])


def test_sources_that_cannot_be_read_are_left_alone() -> None:
    offers = {"math": "import math"}
    assert missing_imports("x = 1\n", "x = math (\n", offers) is None
    assert missing_imports("from a import *\n", "from a import *\nmath\n", offers) is None


def test_only_a_name_that_an_edit_adds_is_imported() -> None:
    """An edit that removes an import is not undone because the thought mentions the import."""
    source = "import os\n\n\ndef f():\n    return os.sep\n"
    edit = SearchReplace("m.py", "import os\n\n\n", "")
    assert run(edit, thought="I drop `import os` here", source=source).repairs == ()


# ---------------------------------------------------------------------------------- switching off


@pytest.mark.parametrize(
    ("name", "edit", "thought"),
    [
        ("final-newline", change("return value\n", "return 1"), ""),
        ("indentation", change("        if value:\n            return value\n", "pass\n"), ""),
        ("missing-import", change("return value", "return math.pi"), "import math"),
        ("path", SearchReplace("repo/m.py", "return value", "return 1"), ""),
    ],
)
def test_each_repair_can_be_switched_off(name: str, edit: Edit, thought: str) -> None:
    assert name in REPAIRS
    assert [repair.name for repair in run(edit, thought=thought).repairs] == [name]
    for off in (name, "all"):
        proposal = PatchProposal((edit,), thought)
        outcome = apply_proposal(proposal, MemoryFiles({"m.py": SOURCE}), no_repair=(off,))
        assert isinstance(outcome, ApplyFailure) or outcome.repairs == ()


def test_a_readers_repair_that_is_off_fails_the_reply() -> None:
    repair = Repair("unclosed-fence", "the fence of line 3 is not closed", "malformed")
    proposal = PatchProposal((change("return value", "return 1"),), repairs=(repair,))
    files = MemoryFiles({"m.py": SOURCE})
    done = apply_proposal(proposal, files)
    assert isinstance(done, AppliedPatch)
    assert done.repairs == (repair,)
    refused = apply_proposal(proposal, files, no_repair=("unclosed-fence",))
    assert isinstance(refused, ApplyFailure)
    assert "'unclosed-fence', which is off" in refused.reason


def test_an_unknown_name_is_an_error_that_lists_the_known() -> None:
    assert "near" in switched_off(["all"])
    with pytest.raises(ConfigurationError, match=r"--no-repair nearly: .* near"):
        switched_off(["nearly"])
