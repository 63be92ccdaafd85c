"""A moved Python module takes the imports of other files with it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.patching import apply_proposal, parse_reply
from agent.types import AppliedPatch, PatchProposal
from tests.support.memory_files import MemoryFiles

MOVE = {"path": "pkg/old.py", "rename": "pkg/new.py"}
AWAY = {"path": "pkg/old.py", "rename": "pkg/deep/new.py"}
BASE = {"pkg/__init__.py": "", "pkg/old.py": "x = 1\n"}


def moved(
    files: Mapping[str, str], *edits: Mapping[str, object], allow: tuple[str, ...] = ()
) -> AppliedPatch:
    proposal = parse_reply(json.dumps({"edits": edits}))
    assert isinstance(proposal, PatchProposal), proposal
    done = apply_proposal(proposal, MemoryFiles(files), allow=allow)
    assert isinstance(done, AppliedPatch), done
    return done


def text_of(patch: AppliedPatch, path: str) -> str | None:
    changed = {change.path: (change.after or b"").decode() for change in patch.changes}
    return changed.get(path)


@pytest.mark.parametrize(
    ("before", "near", "away"),
    [
        ("import pkg.old\npkg.old.x\n",
         "import pkg.new\npkg.new.x\n", "import pkg.deep.new\npkg.deep.new.x\n"),
        ("import os, pkg.old as o  # why\n",
         "import os, pkg.new as o  # why\n", "import os, pkg.deep.new as o  # why\n"),
        ("from pkg import old\n", "from pkg import new as old\n",
         "from pkg.deep import new as old\n"),
        ("from pkg import old as o\n", "from pkg import new as o\n",
         "from pkg.deep import new as o\n"),
        ("from pkg.old import (  # both\n    x,\n    y as z,\n)\n",
         "from pkg.new import (  # both\n    x,\n    y as z,\n)\n",
         "from pkg.deep.new import (  # both\n    x,\n    y as z,\n)\n"),
        ("from pkg . \\\n  old import *\n", "from pkg.new import *\n",
         "from pkg.deep.new import *\n"),
        ("if 1:\n    from pkg import a, old, b, old as o\n",
         "if 1:\n    from pkg import a, new as old, b, new as o\n",
         "if 1:\n    from pkg.deep import new as old\n    from pkg.deep import new as o\n"
         "    from pkg import a, b\n"),
        ("if 1: from pkg import (old, a)\n", "if 1: from pkg import (new as old, a)\n",
         "if 1: from pkg.deep import new as old; from pkg import (a)\n"),
        ("é = 'ü'; import pkg.old; f'{pkg.old.x}'; é, pkg.old.x\n",
         None, None),
        ("é = 'ü'; import pkg.old; é, pkg.old.x\n",
         "é = 'ü'; import pkg.new; é, pkg.new.x\n",
         "é = 'ü'; import pkg.deep.new; é, pkg.deep.new.x\n"),
    ],
)  # fmt: skip
def test_forms_of_imports(before: str, near: str | None, away: str | None) -> None:
    for move, after in ((MOVE, near), (AWAY, away)):
        patch = moved({**BASE, "a.py": before}, move)
        if after is not None:
            assert text_of(patch, "a.py") == after
            assert patch.notes == ("imports of moved modules were rewritten in a.py",)


@pytest.mark.parametrize(
    ("path", "before", "near", "away"),
    [
        ("pkg/__init__.py", "from . import old\n", "from . import new as old\n",
         "from .deep import new as old\n"),
        ("pkg/__init__.py", "from .old import x\n", "from .new import x\n",
         "from .deep.new import x\n"),
        ("pkg/sub/a.py", "from ..old import x\n", "from ..new import x\n",
         "from ..deep.new import x\n"),
        ("pkg/old.py", "from .other import x\nfrom . import other\n", None,
         "from ..other import x\nfrom .. import other\n"),
    ],
)  # fmt: skip
def test_relative_imports(path: str, before: str, near: str | None, away: str) -> None:
    files = {**BASE, "pkg/sub/__init__.py": "", "pkg/other.py": "x = 1\n", path: before}
    assert text_of(moved(files, MOVE), path.replace("old", "new")) == (near or before)
    there = "pkg/deep/new.py" if path == "pkg/old.py" else path
    assert text_of(moved(files, AWAY), there) == away


def test_a_package_and_its_modules_move_together() -> None:
    files = {
        "src/pkg/__init__.py": "",
        "src/pkg/old/__init__.py": "from .one import a\n",
        "src/pkg/old/one.py": "a = 1\n",
        "use.py": "import pkg.old.one\nfrom pkg.old import one\npkg.old.a, pkg.old.one.a\n",
    }
    names = ("__init__", "one")
    moves = ({"path": f"src/pkg/old/{n}.py", "rename": f"src/pkg/new/{n}.py"} for n in names)
    assert text_of(moved(files, *moves), "use.py") == (
        "import pkg.new.one\nfrom pkg.new import one\npkg.new.a, pkg.new.one.a\n"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import pkg.old\npkg = 1\npkg.old.x\n", "pkg is the name of something else too"),
        ("import pkg\npkg.old.x\n", "pkg.old is used without being imported"),
        ("import pkg.old\npkg . old\n", "pkg.old is used without being imported"),
        ("import pkg.old as o, (\n", "it cannot be parsed"),
        ("run('pkg.old')\n", ""),
    ],
)
def test_an_unclear_file_is_left_and_noted(text: str, why: str) -> None:
    patch = moved({**BASE, "a.py": text}, MOVE)
    assert text_of(patch, "a.py") is None
    shown = f"a.py ({why})" if why else "a.py"
    assert patch.notes == (f"pkg/old.py was moved, and is still named in {shown}",)


def test_a_name_that_two_modules_may_have_is_left() -> None:
    files = {**BASE, "src/pkg/old.py": "", "a.py": "import pkg.old\n", "types.py": "", "b.py": ""}
    assert "pkg.old may be src/pkg/old.py" in moved(files, MOVE).notes[0]
    other = {"types.py": "x = 1\n", "b.py": "import types\n"}
    patch = moved(other, {"path": "types.py", "rename": "kinds.py"})
    assert text_of(patch, "b.py") is None


def test_what_a_package_binds_instead_of_its_module_stays() -> None:
    files = {**BASE, "pkg/__init__.py": "from .old import old\n", "a.py": "from pkg import old\n"}
    patch = moved(files, MOVE)
    assert text_of(patch, "pkg/__init__.py") == "from .new import old\n"
    assert text_of(patch, "a.py") is None


def test_other_edits_of_the_reply_come_first_and_win() -> None:
    files = {**BASE, "a.py": "from pkg.old import x\n", "b.py": "import pkg.old as o\n"}
    mine = {"path": "a.py", "search": "pkg.old import x", "replace": "pkg.new import y"}
    other = {"path": "b.py", "search": "import pkg.old as o", "replace": "from pkg.old import z"}
    patch = moved(files, MOVE, mine, other)
    assert text_of(patch, "a.py") == "from pkg.new import y\n"
    assert text_of(patch, "b.py") == "from pkg.old import z\n"
    assert patch.notes == (
        "pkg/old.py was moved, and is still named in b.py (the reply itself writes this import)",
    )
    shim = {"path": "pkg/old.py", "create": "from pkg.new import *\n"}
    assert moved(files, MOVE, shim).notes == ()


def test_protected_and_generated_files_are_left() -> None:
    use = "from pkg.old import x\n"
    files = {**BASE, ".claude/a.py": use, "g.py": f"# @generated\n{use}"}
    notes = moved(files, MOVE).notes
    assert len(notes) == 1
    assert ".claude/a.py (" in notes[0]
    assert "g.py (it is generated)" in notes[0]
    allowed = moved(files, MOVE, allow=("g.py",))
    assert text_of(allowed, "g.py") == "# @generated\nfrom pkg.new import x\n"


# ------------------------------------------------------------------------- the same behaviour

USES = (
    "import pkg.old\nprint(pkg.old.x)\n",
    "import pkg.old, pkg.other\nprint(pkg.old.f(), pkg.other.y)\n",
    "import pkg.old as o\nprint(o.f())\n",
    "from pkg import old\nprint(old.x)\n",
    "from pkg import other, old as o\nprint(o.x, other.y)\n",
    "from pkg.old import x, f as g\nprint(x, g())\n",
    "from pkg.old import *\nprint(x)\n",
    "def late():\n    import pkg.old\n    return pkg.old.f()\nprint(late())\n",
    "try:\n    from pkg import (\n        old,\n        other)\nfinally:\n    print(old.x)\n",
)
RELATIVE = (
    "from . import old\nz = old.x\n",
    "from .old import f\nz = f()\n",
    "from . import other, old as o\nz = o.f(), other.y\n",
    "from .old import *\nz = x\n",
)
PLACES = ("pkg/new.py", "pkg/sub/new.py", "pkg/sub/old.py", "new.py", "other_pkg/new.py")


def run_main(files: Mapping[str, str]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            file = Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        command = [sys.executable, "-B", "-c", "import main"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (files, done.stderr)
        return done.stdout


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    package=st.sampled_from(["", "from . import other\n", *RELATIVE[:3]]),
    inner=st.sampled_from([text.replace("from .", "from ..") for text in RELATIVE]),
    uses=st.lists(st.sampled_from(USES), min_size=1, max_size=3),
    own=st.sampled_from(["from .other import y\n", "from . import other\ny = other.y\n"]),
    place=st.sampled_from(PLACES),
)
def test_a_package_behaves_the_same(
    package: str, inner: str, uses: list[str], own: str, place: str
) -> None:
    files = {
        "pkg/__init__.py": package,
        "pkg/other.py": "y = 2\n",
        "pkg/old.py": f"{own}x = 1\ndef f(): return x + y\n",
        "pkg/sub/__init__.py": "",
        "pkg/sub/inner.py": inner,
        **{f"use{number}.py": text for number, text in enumerate(uses)},
    }
    files["main.py"] = "import pkg.sub.inner\n" + "".join(
        f"import use{number}\n" for number in range(len(uses))
    )
    patch = moved(files, {"path": "pkg/old.py", "rename": place})
    after = {change.path: change.after for change in patch.changes}
    assert len(patch.notes) == 1, patch.notes  # nothing is left
    new = {**files, **{path: data.decode() for path, data in after.items() if data is not None}}
    del new["pkg/old.py"]
    assert run_main(new) == run_main(files)
