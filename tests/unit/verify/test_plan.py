"""What goes on the import path of the runs."""

from __future__ import annotations

import pytest

from agent.types import FileChange
from agent.verify.plan import import_roots
from tests.support.fakes import MemorySnapshot

_NAMESPACE = ("src/poet/json/__init__.py", "src/poet/json/schema.py", "src/poet/cli/__init__.py")


@pytest.mark.parametrize(
    ("paths", "changed", "roots"),
    [
        (("pkg/__init__.py", "pkg/a.py"), "pkg/a.py", (".",)),
        (("lib/pkg/__init__.py", "lib/pkg/a.py"), "lib/pkg/a.py", (".", "lib")),
        (_NAMESPACE, "src/poet/json/schema.py", (".", "src")),
        (("plug/types.py", "plug/web/__init__.py"), "plug/web/__init__.py", (".",)),
        (("plug/mine.py", "plug/web/__init__.py"), "plug/web/__init__.py", (".", "plug")),
    ],
    ids=["top", "below", "namespace package", "namespace with a standard name", "plain folder"],
)
def test_nothing_on_the_import_path_hides_the_standard_library(
    paths: tuple[str, ...], changed: str, roots: tuple[str, ...]
):
    snapshot = MemorySnapshot(dict.fromkeys(paths, ""))
    assert import_roots(snapshot, [FileChange(changed, b"", b"x = 1\n")]) == roots


def test_the_scope_comes_first_on_the_import_path() -> None:
    paths = ("a/src/m.py", "src/m.py", "libs/pkg/__init__.py", "libs/pkg/x.py")
    snapshot = MemorySnapshot(dict.fromkeys(paths, ""), scope="a")
    changes = [FileChange("libs/pkg/x.py", b"", b"x = 1\n")]
    assert import_roots(snapshot, changes) == ("a", "a/src", "libs")
