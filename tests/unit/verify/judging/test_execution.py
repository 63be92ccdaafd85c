"""What a patch changes in Python source, and the source with the base's functions."""

from __future__ import annotations

import pytest

from agent.verify.judging.execution import changed_code, with_functions_of_base
from tests.support.validation import edit

BASE = """\
import os

LIMIT = 1


class Box:
    size = 1

    def half(self):
        try:
            return self.size // 2
        except TypeError:
            return None


def double(n):
    return n * 2
"""


def changed(after: str, before: str = BASE) -> tuple[list[str], list[str], list[str]]:
    code = changed_code([edit("box.py", before, after)])
    return sorted(code.lines), sorted(code.new), sorted(code.names)


@pytest.mark.parametrize(
    "after",
    [
        BASE + "# fixed\n",
        BASE.replace("n * 2", "n  *  2  # fixed"),
        BASE.replace("def double(n):\n", 'def double(n):\n    """It is fixed."""\n\n'),
    ],
)
def test_what_does_nothing_does_not_count(after: str) -> None:
    assert changed(after) == ([], [], [])


def test_lines_of_functions_names_of_the_rest() -> None:
    after = BASE.replace("n * 2", "n * LIMIT").replace("LIMIT = 1", "LIMIT = 2")
    after = after.replace("size = 1", "size = 4")
    assert changed(after) == (["box.py:17"], [], ["LIMIT", "size"])


def test_the_head_of_a_handler_counts_and_not_the_block_below_it() -> None:
    after = BASE.replace("except TypeError", "except (TypeError, ValueError)")
    assert changed(after) == (["box.py:12"], [], [])


def test_another_signature_concerns_the_whole_function() -> None:
    assert changed(BASE.replace("double(n)", "double(n=1)")) == (["box.py:17"], [], [])


def test_a_new_function_is_new() -> None:
    assert changed(BASE + "\n\ndef treble(n):\n    return n * 3\n") == ([], ["box.py:21"], [])


def test_removed_lines_are_of_the_base() -> None:
    before = BASE.replace("    return n * 2", "    n += 1\n    return n * 2")
    change = edit("box.py", before, BASE)
    assert not changed_code([change]).lines
    assert changed_code([change], in_base=True).lines == {"box.py:17"}


def test_other_files_are_only_named() -> None:
    code = changed_code([edit("data.json", "1", "2")])
    assert (code.files, code.source, code.by_path) == ({"data.json"}, set(), {})


def test_functions_are_put_back_and_nothing_else() -> None:
    after = BASE.replace("n * 2", "n * 3").replace("LIMIT = 1", "LIMIT = 2")
    (undone,) = with_functions_of_base([edit("box.py", BASE, after)]) or ()
    assert undone.after == BASE.replace("LIMIT = 1", "LIMIT = 2").encode()


@pytest.mark.parametrize(
    "after", [BASE.replace("n * 2", "n * 3"), BASE.replace("LIMIT = 1", "LIMIT = 2")]
)
def test_a_tree_that_tells_nothing_is_not_made(after: str) -> None:
    """It would be the base, or the patch."""
    assert with_functions_of_base([edit("box.py", BASE, after)]) is None
