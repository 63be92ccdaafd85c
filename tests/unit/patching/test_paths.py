"""Paths that an edit may name, with the attacks that each rule is there for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.patching.paths import RefusedPath, check_path, folded
from agent.patching.protected import PROTECTED


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("a.py", "a.py"),
        ("./pkg/a.py", "pkg/a.py"),
        ("pkg/./a.py", "pkg/a.py"),
        ("pkg/my file.py", "pkg/my file.py"),
        ("pkg/naïve/文件.py", "pkg/naïve/文件.py"),
        (".gitignore", ".gitignore"),
        (".github/CODEOWNERS", ".github/CODEOWNERS"),
        ("src/hooks/use.ts", "src/hooks/use.ts"),
        ("a/b/..c.py", "a/b/..c.py"),
        ("git.py", "git.py"),
        ("a/x.lock", "a/x.lock"),
        ("backup~", "backup~"),
        ("tox.ini", "tox.ini"),
        ("Makefile", "Makefile"),
        (".env.example", ".env.example"),
    ],
)
def test_takes_ordinary_paths(path: str, normal: str) -> None:
    assert check_path(path) == normal


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "empty"),
        (".", "names no file"),
        ("../x.py", '".."'),
        ("a/../../x.py", '".."'),
        ("a/..", '".."'),
        ("/etc/passwd", "absolute"),
        ("//host/share", "absolute"),
        ("C:/x.py", "absolute"),
        ("c:x.py", "absolute"),
        ("~/x.py", "absolute"),
        ("a//b.py", "empty part"),
        ("a/", "empty part"),
        ("a\\..\\b.py", "backslash"),
        ("a\0.py", "control"),
        ("a\n.py", "control"),
        ("a\x1b[2J.py", "control"),
        ("a\x7f.py", "control"),
        ("a\u202ecod.py", "control"),
        ("a\u200b.py", "control"),
        ("a\u2028.py", "control"),
        ("a\ufeff.py", "control"),
        ("a\u3164.py", "control"),
        ("a\ud800.py", "control"),
        ("a /b.py", "space"),
        (" a.py", "space"),
        ("a.py ", "space"),
        ("a./b.py", "dot"),
        ("a.py.", "dot"),
        ("x" * 256, "255 bytes"),
        ("é" * 128, "255 bytes"),
        ("x/" * 600 + "a", "1024 bytes"),
        (".git/config", "git's own"),
        ("sub/.git/hooks/post-checkout", "git's own"),
        (".GIT/config", "git's own"),
        (".Git", "git's own"),
        ("git~1/config", "short name"),
        ("GIT~2", "short name"),
        ("gi7eba~1", "short name"),
        ("GITHUB~1/WORKFL~1/ci.yml", "short name"),
        ("GITLAB~1.YML", "short name"),
        (".g\u200cit/config", "control"),
        (".git\ufe0f/config", "control"),
        (".git::$INDEX_ALLOCATION/config", "git's own"),
        (".git:x", "git's own"),
        ("．git/config", "git's own"),
        (".ｇｉｔ/config", "git's own"),
        (".gitmodules", "git's own"),
        ("a/.gitattributes", "git's own"),
        (".GitAttributes", "git's own"),
        ("a/b.pyc", "start-up"),
        ("__pycache__/a.cpython-311.PYC", "start-up"),
        ("a/evil.pth", "start-up"),
        ("sitecustomize.py", "start-up"),
        ("lib/usercustomize/__init__.py", "start-up"),
        ("SiteCustomize.py", "start-up"),
        ("x.egg-info/PKG-INFO", "metadata"),
        ("x-1.0.dist-info/entry_points.txt", "metadata"),
    ],
)
def test_refuses_and_says_why(path: str, why: str) -> None:
    refused = check_path(path, allow=("*",))
    assert isinstance(refused, RefusedPath)
    assert why in refused.reason


@pytest.mark.parametrize(
    "path",
    [
        ".github/workflows/ci.yml",
        ".github/workflows/deep/ci.yml",
        ".GitHub/Workflows/ci.yml",
        ".gitlab-ci.yml",
        "Jenkinsfile",
        ".husky/pre-commit",
        "conftest.py",
        "tests/unit/conftest.py",
        "poetry.lock",
        "web/package-lock.json",
        "Cargo.lock",
        ".gitlab-ci.yaml",
        "ci/build.gitlab-ci.yml",
        ".circleci/config.yml",
        "azure-pipelines.yml",
        "deploy/azure-pipelines-release.yaml",
        ".azure-pipelines/build.yml",
        ".travis.yml",
        "Jenkinsfile.release",
        ".pre-commit-config.yaml",
        ".lefthook.toml",
        ".vscode/tasks.json",
        ".devcontainer/devcontainer.json",
        ".ｇithub/workflows/ci.yml",
        ".env",
        "deploy/.ENV.production",
        "certs/server.pem",
    ],
)
def test_protected_paths_need_leave(path: str) -> None:
    assert isinstance(check_path(path), RefusedPath)
    assert isinstance(check_path(path, allow=("other.py", "*/other/*")), RefusedPath)
    assert check_path(path, allow=(path,)) == path
    assert check_path(f"./{path}", allow=("*.none", path)) == path


def test_leave_is_given_by_pattern() -> None:
    assert check_path("tests/conftest.py", allow=("conftest.py",)) == "tests/conftest.py"
    assert check_path("tests/a/conftest.py", allow=("tests/*",)) == "tests/a/conftest.py"
    assert isinstance(check_path("src/conftest.py", allow=("tests/*",)), RefusedPath)


def test_protected_patterns_are_written_as_they_are_compared() -> None:
    assert [pattern for pattern in PROTECTED if pattern != folded(pattern)] == []


@pytest.mark.parametrize("path", ["```python", "a?.py", "a.py (new)|", "x<y>.py", "ab:c.py"])
def test_odd_signs_are_refused_for_new_files_only(path: str) -> None:
    assert check_path(path) == path
    assert isinstance(check_path(path, new=True), RefusedPath)


@given(st.text(max_size=60) | st.text("./\\~: git\u200c", max_size=12))
def test_what_is_taken_stays_inside_and_is_stable(path: str) -> None:
    checked = check_path(path)
    if isinstance(checked, str):
        parts = checked.split("/")
        assert "" not in parts
        assert ".." not in parts
        assert ".git" not in {part.casefold() for part in parts}
        assert check_path(checked) == checked
