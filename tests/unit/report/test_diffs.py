from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup, escape

from agent.report.diffs import coloured, diff_files
from tests.support.run_folders import DIFF


def plain(html: Markup) -> str:
    return Markup(html).striptags() if "<" in html else html.unescape()


def test_lines_are_numbered_on_both_sides() -> None:
    (file,) = diff_files(DIFF)
    assert (file.path, file.added, file.removed) == ("shop/basket.py", 3, 1)
    assert [(line.sign, line.old, line.new) for line in file.lines] == [
        (" ", None, None),
        (" ", 6, 6), (" ", 7, 7), (" ", 8, 8),
        ("-", 9, None), ("+", None, 9), ("+", None, 10), ("+", None, 11),
        (" ", 10, 12), (" ", 11, 13), (" ", 12, 14),
    ]  # fmt: skip
    assert '<span class="yc"># The price of nothing is nothing.</span>' in file.lines[5].html


def test_new_deleted_renamed_and_binary_files_are_told() -> None:
    diff = (
        "diff --git a/new.txt b/new.txt\nnew file mode 100644\nindex 000..111\n--- /dev/null\n"
        "+++ b/new.txt\n@@ -0,0 +1 @@\n+hello\n\\ No newline at end of file\n"
        "diff --git a/old.bin b/old.bin\ndeleted file mode 100644\nGIT binary patch\n"
        "diff --git a/a.py b/b.py\nrename from a.py\nrename to b.py\n"
    )
    files = diff_files(diff)
    assert [(file.path, file.added, file.removed) for file in files] == [
        ("new.txt", 1, 0), ("old.bin", 0, 0), ("b.py", 0, 0)
    ]  # fmt: skip
    assert [line.html for line in files[0].lines if line.kind == "meta"] == [
        "new file mode 100644", "\\ No newline at end of file"
    ]  # fmt: skip
    assert [line.html for line in files[2].lines] == ["rename from a.py", "rename to b.py"]


@given(st.lists(st.text('+- @\\abdiff<&"1,', max_size=12), max_size=30))
def test_no_text_is_lost_or_left_unescaped_whatever_it_is(lines: list[str]) -> None:
    text = "\n".join(lines)
    for file in diff_files(text):
        for line in file.lines:
            assert "<" not in line.html.replace("<span", "").replace("</span", "")
    assert diff_files("") == ()


def test_what_is_no_diff_is_shown_as_it_is() -> None:
    (file,) = diff_files("<script>alert(1)</script>\nmore")
    assert [line.html for line in file.lines] == [
        escape("<script>alert(1)</script>"), "more"
    ]  # fmt: skip


@given(st.lists(st.text(max_size=30).filter(lambda t: "\n" not in t and "\r" not in t), max_size=8))
def test_colours_change_no_character(lines: list[str]) -> None:
    for path in ("a.py", "a.js", "a.json", "a.unknown"):
        found = coloured(path, lines)
        assert len(found) == len(lines)
        for html, line in zip(found, lines, strict=True):
            without = html.replace("</span>", "")
            for kind in ("yk", "ys", "yc", "yn"):
                without = without.replace(f'<span class="{kind}">', "")
            assert without == escape(line)


def test_a_long_line_is_not_given_to_a_lexer() -> None:
    assert coloured("a.py", ["import os", "x" * 5000]) == ["import os", "x" * 5000]
    assert coloured("a.py", ["import os"]) != ["import os"]


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        (["    Sum of all prices.", '    """', "    return sum(self.prices)"], ["yc", "yc", "yk"]),
        (["    Prose with the word and in it,", "    and no end."], ["yc", "yc"]),
        (["def f(x):", '    """Sum of it."""', "    return x"], ["yk", "yc", "yk"]),
        (["    for x in y:", "        call(x)"], ["yk", ""]),
    ],
)
def test_a_hunk_may_begin_inside_a_docstring(lines: list[str], kinds: list[str]) -> None:
    found = [re.search(r'class="(y.)"', line) for line in coloured("a.py", lines)]
    assert [match[1] if match else "" for match in found] == kinds
