from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.repository.git import open_repository
from agent.retrieval.history.commits import (
    CommitFacts,
    Touch,
    read_commits,
)
from agent.retrieval.history.hunks import read_hunks
from tests.conftest import run_git
from tests.support.fingerprint import fingerprint
from tests.support.histories import CLIENT
from tests.support.histories import write_and_commit as commit

Make = Callable[[Mapping[str, str | bytes]], Path]


def read(root: Path, revision: str = "HEAD", limit: int = 100) -> list[CommitFacts]:
    with open_repository(root) as git:
        commits = git.ancestors(git.resolve(revision), limit)
        return [facts for batch in read_commits(git, commits) for facts in batch]


def test_messages_files_and_functions(make_repository: Make) -> None:
    root = make_repository({"client.py": CLIENT})
    body = "Sends twice.\n\nAlso this.\n\nSigned-off-by: A <a@example.invalid>"
    changed = CLIENT.replace("return url", "return url * 2").replace("retries = 3", "retries = 4")
    second = commit(root, f"Fix send\n\n{body}", {"client.py": changed, "new.txt": "x\n"})
    first = run_git(root, "rev-parse", "HEAD~1").strip()
    assert read(root) == [
        CommitFacts(
            second,
            "Fix send",
            "Sends twice.\n\nAlso this.",
            2,
            (Touch("client.py", ("Client", "send")), Touch("new.txt")),
        ),
        CommitFacts(first, "base", "", 1, (Touch("client.py"),)),
    ]


@pytest.mark.parametrize(
    ("before", "after", "functions"),
    [
        ("return 1", "return 2", ("helper",)),
        ("def helper():", "def helper(x):", ("helper",)),  # git's header says `send` here
        ("def helper():", "def renamed():", ("helper", "renamed")),
        ("def helper():", "def new():\n    pass\n\n\ndef helper():", ("new",)),
        ("def helper():", "\n\n@cached\ndef helper():", ()),  # of what follows
        ("import os", "import os\n\n\n\n", ()),
    ],
    ids=["body", "signature", "rename", "added-before", "decorator", "blank-lines"],
)
def test_functions_of_hunks(
    make_repository: Make, before: str, after: str, functions: tuple[str, ...]
) -> None:
    root = make_repository({"client.py": CLIENT})
    commit(root, "change", {"client.py": CLIENT.replace(before, after)})
    found = read(root)[0].touches[0].functions
    assert set(functions) <= set(found) <= {*functions, "helper"}
    assert ("helper" in found) == ("helper" in functions)


@pytest.mark.parametrize(
    ("path", "source", "name"),
    [
        ("a.js", "export async function load(x) {\n  let a = x;\n  return 1;\n}\n", "load"),
        (
            "a.ts",
            "class A {\n  private get(x: T): U {\n    if (x) {\n return 1;\n }\n }\n}\n",
            "get",
        ),
        ("a.tsx", "const View = (props) => {\n  let a = 0;\n  return 1;\n};\n", "View"),
    ],
    ids=lambda value: value if "." in value and "\n" not in value else "",
)
def test_languages(make_repository: Make, path: str, source: str, name: str) -> None:
    root = make_repository({path: source})
    commit(root, "change", {path: source.replace("return 1", "return 2")})
    assert read(root)[0].touches == (Touch(path, (name,)),)


def test_content_that_looks_like_a_diff_is_content(make_repository: Make) -> None:
    fake = "++ b/other.py\n-- a/other.py\n"
    root = make_repository(
        {"a.py": f"def f():\n    return 1\n{fake}", "b.py": "def g():\n    pass\n"}
    )
    forged = "commit " + "1" * 40 + "\ndiff --git a/x b/x\n@@ -1 +1 @@ def evil():\n"
    commit(
        root,
        "two\n\ncommit " + "2" * 40,
        {"a.py": f"def f():\n    return 2\n{forged}", "b.py": "def g():\n    return 1\n"},
    )
    assert read(root)[0].touches == (Touch("a.py", ("f",)), Touch("b.py", ("g",)))


def test_odd_names_and_binary_files(make_repository: Make) -> None:
    source = "def f():\n    return 1\n"
    odd = ['a "quoted".py', "new\nline.py", "ü/ñ.py", "tab\t.py", "-M.py", "A", " b/ a"]
    root = make_repository(dict.fromkeys(odd, source) | {"x.py": b"\0def f():\n return 1\n"})
    raw = os.fsencode(root) + b"/\xff.py"
    Path(os.fsdecode(raw)).write_text(source)
    changed = {name: source.replace("1", "2") for name in odd}
    commit(root, "all", changed | {"x.py": b"\0def f():\n return 2\n"})
    facts = read(root)[0]
    touched = {touch.path: touch.functions for touch in facts.touches}
    assert touched == {n: ("f",) if n.endswith(".py") else () for n in odd} | {"x.py": ()}
    assert facts.size == len(odd) + 2  # with the name that is not UTF-8


def test_a_hostile_repository_runs_nothing(make_repository: Make, tmp_path: Path) -> None:
    root = make_repository({"a.py": "def f():\n    return 1\n"})
    commit(root, "change", {"a.py": "def f():\n    return 2\n"})
    canary = tmp_path / "canary"
    script = tmp_path / "evil"
    script.write_text(f"#!/bin/sh\ntouch {canary}\ncat /dev/null\n")
    script.chmod(0o755)
    for name in ("diff.evil.textconv", "diff.evil.command", "diff.external", "gpg.program"):
        run_git(root, "config", name, str(script))
    run_git(root, "config", "log.showSignature", "true")
    run_git(root, "config", "diff.python.textconv", str(script))
    (root / ".git" / "info" / "attributes").write_text("*.py diff=evil\n")
    run_git(root, "log", "-p", "-1")
    assert canary.exists()  # the attack is live
    canary.unlink()
    os.mkfifo(root / ".gitattributes")  # whoever reads it waits for ever
    before = fingerprint(root / ".git")
    assert read(root)[0].touches == (Touch("a.py", ("f",)),)
    assert not canary.exists()
    assert fingerprint(root / ".git") == before


def test_a_commit_without_its_blobs_is_read_by_its_paths(make_repository: Make) -> None:
    source = "def f():\n    return {}\n"
    root = make_repository({"a.py": source.format(0), "b.py": "b = 0\n"})
    lost = commit(root, "two", {"a.py": source.format(1)})
    commit(root, "three", {"b.py": "b = 1\n"})
    run_git(root, "mv", "b.py", "c.py")
    commit(root, "four", {})
    commit(root, "five", {"a.py": source.format(2)})
    commit(root, "six", {"a.py": source.format(3)})
    blob = run_git(root, "rev-parse", f"{lost}:a.py").strip()
    (root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    facts = read(root)
    assert [(one.subject, one.touches, one.renames) for one in facts] == [
        ("six", (Touch("a.py", ("f",)),), ()),
        ("five", (Touch("a.py"),), ()),
        ("four", (Touch("c.py"),), (("b.py", "c.py"),)),
        ("three", (Touch("b.py"),), ()),
        ("two", (Touch("a.py"),), ()),
        ("base", (Touch("a.py"), Touch("b.py")), ()),
    ]
    with open_repository(root) as git:
        commits = git.ancestors(git.resolve("HEAD"), 100)
        hunks = [one for batch in read_hunks(git, commits, ("*.py",)) for one in batch]
    assert [one.commit for one in hunks] == [one.commit for one in facts]
