"""Real git applies the diffs and gets the same bytes."""

from __future__ import annotations

import pytest

from agent.patching import unified_diff
from agent.types import FileChange
from tests.support.git_apply import git_apply

EMPTY = "e69de29bb2d1"


def check(*changes: FileChange) -> bytes:
    diff = unified_diff(changes)
    wanted = {c.path: (c.after, c.executable) for c in changes if c.after is not None}
    assert git_apply(changes, diff) == wanted
    return diff


def test_the_whole_form() -> None:
    before = b"import os\n\n\ndef f():\n    a = 1\n    b = 2\n    c = 3\n    return a\n"
    diff = check(
        FileChange("pkg/m.py", before, before.replace(b"c = 3", b"c = 4")),
        FileChange("gone.py", b"x\n", None),
        FileChange("new.sh", None, b"echo", executable=True),
        FileChange("same.py", b"x", b"x"),
    )
    assert diff.decode() == (
        "diff --git a/gone.py b/gone.py\n"
        "deleted file mode 100644\n"
        "index 587be6b4c3f9..000000000000\n"
        "--- a/gone.py\n"
        "+++ /dev/null\n"
        "@@ -1 +0,0 @@\n"
        "-x\n"
        "diff --git a/new.sh b/new.sh\n"
        "new file mode 100755\n"
        "index 000000000000..dccbe8ead873\n"
        "--- /dev/null\n"
        "+++ b/new.sh\n"
        "@@ -0,0 +1 @@\n"
        "+echo\n"
        "\\ No newline at end of file\n"
        "diff --git a/pkg/m.py b/pkg/m.py\n"
        "index 485cf9b45fd5..e560ac62e4a2 100644\n"
        "--- a/pkg/m.py\n"
        "+++ b/pkg/m.py\n"
        "@@ -4,5 +4,5 @@ import os\n"
        " def f():\n"
        "     a = 1\n"
        "     b = 2\n"
        "-    c = 3\n"
        "+    c = 4\n"
        "     return a\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, b""),
        (b"", None),
        (b"", b"a\n"),
        (b"a\n", b""),
        (b"a", b"a\n"),
        (b"a\n", b"a"),
        (b"a\nb", b"a\nb\nc"),
        (b"a\r\nb\r\n", b"a\r\nc\r\n"),
        (b"a\n", b"a\r\n"),
        (b"\xef\xbb\xbfa\n", b"\xef\xbb\xbfb\n"),
        (b"caf\xe9\n\xff\xfe\n", b"caf\xe8\n\xff\xfe\n"),
        ("a\nb\n".encode("utf-16"), "a\nc\n".encode("utf-16")),
        (b"a\0b\n", b"a\0c\n"),
        (b"-- a\n++ b\n", b"++ c\n-- d\n"),
        (b"a\rb\n", b"a\rc\n"),
        (b"\x0c\nx\n\x0b\n", b"\x0c\ny\n\x0b\n"),
        ("é" * 60 + "\n\n\n\n\nx\n", "é" * 60 + "\n\n\n\n\ny\n"),
    ],
)
def test_contents(before: bytes | str | None, after: bytes | str | None) -> None:
    old = before.encode() if isinstance(before, str) else before
    new = after.encode() if isinstance(after, str) else after
    check(FileChange("f", old, new))
    check(FileChange("run", old, new, executable=True))


@pytest.mark.parametrize(
    "path",
    [
        *("a b.py", "dir x/a b", "é/文件.py", 'q"uote.py', "t\tab", "new\nline", "b\\s", "\x7f"),
        *("-x", "b/a"),
    ],
)
@pytest.mark.parametrize(
    "contents", [(None, b"x\n"), (b"x\n", None), (b"x\n", b"y\n"), (None, b"")]
)
def test_names(path: str, contents: tuple[bytes | None, bytes | None]) -> None:
    check(FileChange(path, *contents))
