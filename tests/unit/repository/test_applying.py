"""Applying a diff: the real `git apply` decides what is right."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.repository import PatchError, TreeFile, apply_patch
from agent.types import FileChange
from tests.support.git_apply import contents, git

BASE = {
    "shop/cart.py": b"".join(b"line %d\n" % n for n in range(1, 31)),
    "shop/with space.py": b"a\nb\nc\n",
    "shop/no_end.py": b"a\nb\nc",
    "shop/crlf.py": b"a\r\nb\r\nc\r\n",
    "shop/empty.py": b"",
    "run.sh": b"echo\n",
}


class Files:
    """A tree of plain files."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files

    def get(self, path: str) -> TreeFile | None:
        return TreeFile(self.files[path]) if path in self.files else None

    def is_folder(self, path: str) -> bool:
        return any(name.startswith(f"{path}/") for name in self.files)


def ours(base: Mapping[str, bytes], patch: bytes) -> dict[str, bytes] | None:
    """The tree after our applier; None where it refuses."""
    try:
        changes = apply_patch(patch, Files(base)).changes
    except PatchError:
        return None
    after = dict(base)
    for change in changes:
        if change.after is None:
            del after[change.path]
        else:
            after[change.path] = change.after
    return after


def put(root: Path, files: Mapping[str, bytes]) -> None:
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


def theirs(root: Path, base: Mapping[str, bytes], patch: bytes) -> dict[str, bytes] | None:
    """The tree after `git apply`; None where it refuses."""
    root.mkdir()
    put(root, base)
    applied = git(root, "apply", "--whitespace=nowarn", "-", data=patch)
    return contents(root) if applied.returncode == 0 else None


def diff_of(root: Path, base: Mapping[str, bytes], after: Mapping[str, bytes], *more: str) -> bytes:
    """What git prints between two trees."""
    root.mkdir()
    git(root, "init", "-q")
    put(root, base)
    git(root, "add", "-A", "-f")
    before = git(root, "write-tree").stdout.decode().strip()
    for path in base.keys() - after.keys():
        (root / path).unlink()
    put(root, after)
    git(root, "add", "-A", "-f")
    return git(root, "diff", "--cached", *more, before).stdout


def edited(path: str, *replacements: tuple[bytes, bytes]) -> dict[str, bytes]:
    data = BASE[path]
    for old, new in replacements:
        assert old in data
        data = data.replace(old, new)
    return {**BASE, path: data}


def hunk(*lines: str, path: str = "shop/cart.py", head: str | None = None) -> bytes:
    old = sum(line[:1] in " -" for line in lines)
    new = sum(line[:1] in " +" for line in lines)
    head = head or f"@@ -5,{old} +5,{new} @@"
    return (
        f"--- a/{path}\n+++ b/{path}\n{head}\n".encode()
        + "".join(f"{line}\n" for line in lines).encode()
    )


@pytest.mark.parametrize(
    "after",
    [
        edited("shop/cart.py", (b"line 1\n", b""), (b"line 30\n", b"line 30\nline 31\n")),
        edited("shop/with space.py", (b"b", b"B")),
        edited("shop/no_end.py", (b"c", b"c\n")),
        edited("shop/crlf.py", (b"b\r\n", b"B\r\n")),
        {**BASE, "new/deep/file.py": b"x\n", "new/empty.py": b""},
        {**BASE, 'na"me\tü.py': b"x\n"},
        {path: data for path, data in BASE.items() if path != "shop/empty.py"},
        {**BASE, "blob.bin": bytes(range(256)) * 20},
    ],
)
def test_what_git_prints_is_applied(tmp_path: Path, after: dict[str, bytes]) -> None:
    patch = diff_of(tmp_path / "diff", BASE, after, "--binary")
    assert ours(BASE, patch) == after


CONTEXT = (" line 5", "-line 6", "+six", " line 7")


@pytest.mark.parametrize(
    "patch",
    [
        hunk(*CONTEXT),
        hunk(*CONTEXT, head="@@ -11,3 +11,3 @@"),  # found at another line
        hunk(*CONTEXT, head="@@ -5,4 +5,4 @@"),  # more lines than there are
        hunk(" line 5", "-line 66", "+six", " line 7"),
        b"words before\n" + hunk(*CONTEXT) + b"words after\n",
        hunk(*CONTEXT, path="shop/none.py"),
        hunk(*CONTEXT, path="../cart.py"),
        hunk(*CONTEXT, path=".git/config"),
        b"--- /dev/null\n+++ b/shop/cart.py\n@@ -0,0 +1 @@\n+x\n",  # there already
        b"--- /dev/null\n+++ b/shop\n@@ -0,0 +1 @@\n+x\n",
        b"--- /dev/null\n+++ b/run.sh/x\n@@ -0,0 +1 @@\n+x\n",
        b"@@ -1 +1 @@\n-a\n+b\n",
        b"diff --git a/run.sh b/run.sh\nindex 1..2\nBinary files a/run.sh and b/run.sh differ\n",
        b"",
        b"no diff at all\n",
        hunk(*CONTEXT) + b"@@ -5,3 +5,3 @@\n line 5\n-six\n+again\n line 7\n",  # patched already
    ],
)  # fmt: skip
def test_what_git_takes_is_taken_and_what_it_refuses_is_refused(
    tmp_path: Path, patch: bytes
) -> None:
    assert ours(BASE, patch) == theirs(tmp_path / "oracle", BASE, patch)


def test_a_patch_may_lack_its_last_line_end(tmp_path: Path) -> None:
    """git refuses that; the harness goes on with patch(1), which does not."""
    whole = hunk(*CONTEXT)

    assert theirs(tmp_path / "oracle", BASE, whole.removesuffix(b"\n")) is None
    assert ours(BASE, whole.removesuffix(b"\n")) == ours(BASE, whole) is not None


def test_executable_bits_are_kept_and_set() -> None:
    patch = b"diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n"

    assert apply_patch(patch, Files(BASE)).changes == (
        FileChange("run.sh", b"echo\n", b"echo\n", executable=True),
    )


def test_a_submodule_has_no_place_and_a_link_is_refused() -> None:
    head = b"diff --git a/sub b/sub\nnew file mode %d\nindex 0000000..1234567\n"
    tail = b"--- /dev/null\n+++ b/sub\n@@ -0,0 +1 @@\n+Subproject commit 1234567\n"

    found = apply_patch(head % 160000 + tail, Files(BASE))

    assert (found.changes, found.left_out) == ((), ("sub: a submodule",))
    with pytest.raises(PatchError, match="a symbolic link"):
        apply_patch(head % 120000 + tail, Files(BASE))
