"""Files that an edit would be lost in: ignored by git (compared with git itself), or generated."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.patching import apply_proposal
from agent.patching.protected import ignoring_rule, is_generated
from agent.types import (
    AppliedPatch,
    ApplyFailure,
    CreateFile,
    PatchProposal,
    RenameFile,
    SearchReplace,
)
from tests.conftest import run_git
from tests.support.memory_files import MemoryFiles


def _ours(rules: dict[str, str], path: str) -> bool:
    texts = {name: text.encode() for name, text in rules.items()}
    return ignoring_rule(path, texts.get) is not None


def _gits(root: Path, rules: dict[str, str], paths: list[str]) -> set[str]:
    for name, text in rules.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin", "-z"],
        cwd=root,
        input="".join(f"{path}\0" for path in paths).encode(),
        env={"PATH": os.environ["PATH"], "HOME": str(root), "GIT_CONFIG_GLOBAL": os.devnull},
        capture_output=True,
        check=False,
        timeout=60,
    )
    return {path for path in done.stdout.decode().split("\0") if path}


_PATHS = [
    *("a.py", "build/a.py", "src/build/a.py", "src/a.py", "src/deep/a.py", "lib/x.so", "x.log"),
    *("logs/x.log", "docs/build", "docs/a/b/c.md", "foo/bar", "a/foo/bar", "#x", "!x", "a b.py"),
    *("keep.log", "src/keep.log", "build/keep.log", "[x]", "a*b", "dist", "dist/x", "src/dist/y"),
]


@pytest.mark.parametrize(
    "rules",
    [
        {".gitignore": "build/\n*.log\n!keep.log\n"},
        {".gitignore": "/build\n/dist/\n"},
        {".gitignore": "src/*\n!src/a.py\n"},
        {".gitignore": "**/build\ndocs/**\nlib/**/x.so\n"},
        {".gitignore": "foo/bar\n\n# comment\n\\#x\n\\!x\n"},
        {".gitignore": "*\n!src\n!src/**\n"},
        {".gitignore": "a b.py \n\\[x\\]\na\\*b\n[a-c].py\n[^d]ist\n"},
        {".gitignore": "*.log\n", "src/.gitignore": "!keep.log\n/deep\n"},
        {".gitignore": "d?st\n**/deep/*\na/**/bar\n"},
        {".gitignore": "\ufeffbuild/\n"},
        {".gitignore": "build/\r\n*.log\r\n"},
    ],
)
def test_it_agrees_with_git(rules: dict[str, str], tmp_path: Path) -> None:
    run_git(tmp_path, "init", "-q")
    assert {path for path in _PATHS if _ours(rules, path)} == _gits(tmp_path, rules, _PATHS)


# Versions of git disagree about `a**`.
_NAME = st.text("ab*?.", min_size=1, max_size=3).filter(lambda part: "**" not in part)
_PART = _NAME | st.just("**")
_LINE = st.builds(
    lambda negated, anchored, parts, folder: f"{negated}{anchored}{'/'.join(parts)}{folder}",
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "/"]),
    st.lists(_PART, min_size=1, max_size=3),
    st.sampled_from(["", "", "/"]),
)
_FILE = st.lists(st.sampled_from(["a", "b", "ab", "a.b", "ba"]), min_size=1, max_size=4)


@pytest.mark.slow
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(lines=st.lists(_LINE, min_size=1, max_size=4), files=st.lists(_FILE, min_size=1, max_size=8))
def test_it_agrees_with_git_on_any_rules(
    lines: list[str], files: list[list[str]], tmp_path: Path
) -> None:
    if not (tmp_path / ".git").exists():
        run_git(tmp_path, "init", "-q")
    rules = {".gitignore": "\n".join(lines) + "\n"}
    paths = sorted({"/".join(file) for file in files})
    assert {path for path in paths if _ours(rules, path)} == _gits(tmp_path, rules, paths)


def test_hostile_rules_take_no_time() -> None:
    rules = "\n".join(["*a" * 140 + "b", "/".join(["**"] * 100) + "/x"] * 5_000)
    assert not _ours({".gitignore": rules}, "/".join(["a" * 200] * 5))


FILES = MemoryFiles(
    {
        ".gitignore": "build/\n.env*\n*.local.py\n",
        "pkg/run.py": "x = 1\n",
        "build/kept.py": "x = 1\n",
        "fixtures/bare/HEAD": "ref: refs/heads/main\n",
        "fixtures/bare/config": "[core]\n",
    }
)


def apply(*edits: object, allow: tuple[str, ...] = ()) -> AppliedPatch | ApplyFailure:
    return apply_proposal(PatchProposal(edits), FILES, allow=allow)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "edits",
    [
        (CreateFile("build/new.py", "x = 2\n"),),
        (CreateFile("pkg/a.local.py", "x = 2\n"),),
        (RenameFile("pkg/run.py", "build/run.py"),),
        (SearchReplace(".gitignore", "build/\n", ""), CreateFile("build/new.py", "x = 2\n")),
        (CreateFile("fixtures/bare/hooks/post-checkout", "#!/bin/sh\n"),),
        (SearchReplace("fixtures/bare/config", "[core]\n", "[core]\nfsmonitor = x\n"),),
        (RenameFile("pkg/run.py", "fixtures/bare/hooks/post-checkout"),),
        (CreateFile("fixtures/new/HEAD", "ref: refs/heads/main\n"),),
    ],
)
def test_new_files_that_git_hides_or_obeys_need_leave(edits: tuple[object, ...]) -> None:
    outcome = apply(*edits)
    assert isinstance(outcome, ApplyFailure)
    assert {failure.kind for failure in outcome.failures} == {"refused-path"}
    assert isinstance(apply(*edits, allow=("build/*", "*.local.py", "fixtures/*")), AppliedPatch)


def test_a_tracked_file_in_an_ignored_folder_can_be_edited() -> None:
    assert isinstance(apply(SearchReplace("build/kept.py", "x = 1", "x = 2")), AppliedPatch)


GO = "// Code generated by protoc-gen-go. DO NOT EDIT.\npackage a\n"


@pytest.mark.parametrize(
    ("text", "generated"),
    [
        (GO, True),
        ("#!/bin/sh\n# This file was automatically generated. Do not modify it.\n", True),
        ("/*\n * @generated by codegen\n */\n", True),
        ('"""Do not edit: generated by make."""\n', True),
        ("", False),
        ('HEAD = "generated, do not edit"\n', False),
        ("# Do not edit this list by hand.\n", False),
        ("# Passwords are generated here.\n", False),
        ("x = 1\n" * 400 + GO, False),
    ],
)
def test_a_comment_at_the_top_says_that_a_file_is_generated(text: str, generated: bool) -> None:
    assert is_generated(text.encode()) is generated


def test_a_generated_file_is_edited_only_if_the_user_allows_it() -> None:
    files = MemoryFiles({"a.go": GO})
    proposal = PatchProposal((SearchReplace("a.go", "package a", "package b"),))
    refused = apply_proposal(proposal, files)
    assert isinstance(refused, ApplyFailure)
    assert refused.failures[0].kind == "generated"
    assert isinstance(apply_proposal(proposal, files, allow=("a.go",)), AppliedPatch)
