"""Paths that edits may name, and the attacks that each rule prevents."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.patching import apply_proposal
from agent.patching.paths import PROTECTED, RefusedPath, check_path, folded
from agent.types import (
    AppliedEdit,
    AppliedPatch,
    ApplyFailure,
    CreateFile,
    DeleteFile,
    Edit,
    FileChange,
    MatchTier,
    PatchProposal,
    RenameFile,
    SearchReplace,
    SkippedFile,
)
from tests.support.memory_files import MemoryFiles

FILES = MemoryFiles(
    {
        "setup.py": "setup(name='shop')\n",
        "src/shop/till.py": "def total(coins):\n    return sum(coins)\n",
        "src/shop/Coin.py": "class Coin:\n    value = 1\n",
        "src/shop/util.py": "def floor(x):\n    return x // 1\n",
        "src/web/util.py": "def escape(x):\n    return x\n",
        "tests/conftest.py": "import pytest\n",
        "run.sh": "echo one\n",
    },
    skipped=(SkippedFile("link", "symlink"),),
    executable=("run.sh",),
)
TOTAL = (
    "def total(coins):\n    return sum(coins)\n",
    "def total(coins):\n    return sum(coins) + 1\n",
)


def apply(*edits: Edit, **options: Any) -> AppliedPatch | ApplyFailure:
    return apply_proposal(PatchProposal(edits), FILES, **options)


@pytest.mark.parametrize(
    "path",
    [
        *("/testbed/src/shop/till.py", "/repo/src/shop/till.py"),
        *("/home/me/work/shop/src/shop/till.py", "a/src/shop/till.py", "b/src/shop/till.py"),
        *("repo/src/shop/till.py", "shop/till.py", "till.py", "SRC/shop/Till.py"),
        *("shop/Till.py", "src\\shop\\till.py", "`src/shop/till.py`", "lib/shop/core/till.py"),
    ],
)
def test_a_path_that_means_one_file_is_resolved_and_reported(path: str) -> None:
    outcome = apply(SearchReplace(path, *TOTAL))
    assert isinstance(outcome, AppliedPatch), outcome
    assert outcome.edits == (AppliedEdit(0, "src/shop/till.py", MatchTier.EXACT, 2, path),)
    [repair] = outcome.repairs
    assert (repair.name, repair.note, repair.edit) == ("path", "taken for src/shop/till.py", 0)


@pytest.mark.parametrize(
    "edit",
    [
        SearchReplace("util.py", "    return", "    yield"),  # two files have it
        SearchReplace("till.py", "not there\n", "x\n"),  # the text is not in it
        SearchReplace("lib/till.py", "sum(coins)", "max(coins)"),  # too little to know the file by
        SearchReplace("/etc/passwd", *TOTAL),
        SearchReplace("../src/shop/till.py", *TOTAL),
        SearchReplace("/testbed/../src/shop/till.py", *TOTAL),
        SearchReplace("src/shop/till\u202e.py", *TOTAL),
        SearchReplace("shop/link", *TOTAL),
        DeleteFile("util.py"),
        DeleteFile("no/till.pyc"),
    ],
)
def test_a_path_that_may_mean_several_or_none_is_refused(edit: Edit) -> None:
    outcome = apply(edit)
    assert isinstance(outcome, ApplyFailure), outcome
    assert outcome.failures[0].kind in ("unknown-file", "refused-path")


def test_the_text_decides_between_files_of_one_name() -> None:
    outcome = apply(SearchReplace("util.py", "    return x // 1\n", "    return int(x)\n"))
    assert isinstance(outcome, AppliedPatch)
    assert outcome.edits[0].path == "src/shop/util.py"


def test_a_resolved_path_is_still_protected() -> None:
    edit = SearchReplace("/testbed/tests/conftest.py", "import pytest\n", "import os\n")
    outcome = apply(edit)
    assert isinstance(outcome, ApplyFailure)
    assert outcome.failures[0].kind == "refused-path"
    assert isinstance(apply(edit, allow=("conftest.py",)), AppliedPatch)


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("/testbed/new.py", "new.py"),
        ("/testbed/src/shop/new.py", "src/shop/new.py"),
        ("/home/me/shop/src/shop/new.py", "src/shop/new.py"),
        ("a/src/shop/new.py", "src/shop/new.py"),
        ("b/new.py", "new.py"),
        ("repo/new.py", "repo/new.py"),
        ("src/shop/deep/new.py", "src/shop/deep/new.py"),
    ],
)
def test_new_files_lose_the_roots_of_containers_and_diffs(written: str, path: str) -> None:
    outcome = apply(CreateFile(written, "x = 1\n"))
    assert isinstance(outcome, AppliedPatch)
    assert outcome.changes == (FileChange(path, None, b"x = 1\n"),)
    assert outcome.edits[0].path_as_written == ("" if written == path else written)


@pytest.mark.parametrize(
    "path", ["/etc/cron.d/x", "/tmp/x.py", "a\\b.py", "/testbed/../x.py", "/testbed/.git/x", "~/x"]
)
def test_new_files_elsewhere_are_refused(path: str) -> None:
    assert isinstance(apply(CreateFile(path, "x")), ApplyFailure)


def test_a_new_script_is_executable() -> None:
    outcome = apply(CreateFile("bin/new.js", "#!/usr/bin/env node\n"), CreateFile("a.js", "x"))
    assert isinstance(outcome, AppliedPatch)
    assert [one.executable for one in outcome.changes] == [False, True]
    assert b"new file mode 100755" in outcome.diff


def test_a_renamed_file_keeps_bytes_and_mode_and_can_be_edited() -> None:
    outcome = apply(RenameFile("run.sh", "bin/go.sh"), SearchReplace("bin/go.sh", "one", "two"))
    assert isinstance(outcome, AppliedPatch)
    assert outcome.changes == (
        FileChange("bin/go.sh", None, b"echo two\n", executable=True),
        FileChange("run.sh", b"echo one\n", None, executable=True),
    )
    assert [edit.tier for edit in outcome.edits] == [MatchTier.RENAMED, MatchTier.EXACT]
    assert b"new file mode 100755" in outcome.diff


def test_a_file_can_change_the_case_of_its_name() -> None:
    outcome = apply(RenameFile("src/shop/Coin.py", "src/shop/coin.py"))
    assert isinstance(outcome, AppliedPatch)
    assert [change.path for change in outcome.changes] == ["src/shop/Coin.py", "src/shop/coin.py"]


@pytest.mark.parametrize(
    ("edit", "kind"),
    [
        (RenameFile("no.py", "x.py"), "unknown-file"),
        (RenameFile("run.sh", "setup.py"), "exists"),
        (RenameFile("run.sh", "Setup.py"), "refused-path"),
        (RenameFile("run.sh", "../x"), "refused-path"),
        (RenameFile("run.sh", ".git/hooks/x"), "refused-path"),
        (RenameFile("run.sh", "conftest.py"), "refused-path"),
        (RenameFile("tests/conftest.py", "x.py"), "refused-path"),
        (RenameFile("run.sh", "link/x"), "refused-path"),
        (RenameFile("run.sh", "./run.sh"), "no-change"),
        (RenameFile("link", "x"), "not-text"),
    ],
)
def test_renames_that_are_refused(edit: Edit, kind: str) -> None:
    outcome = apply(edit)
    assert isinstance(outcome, ApplyFailure), outcome
    assert outcome.failures[0].kind == kind


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


REFUSED = {
    "empty": ("",),
    "names no file": (".",),
    '".."': ("../x.py", "a/../../x.py", "a/.."),
    "absolute": ("/etc/passwd", "//host/share", "C:/x.py", "c:x.py", "~/x.py"),
    "empty part": ("a//b.py", "a/"),
    "backslash": ("a\\..\\b.py",),
    "control": (
        *("a\0.py", "a\n.py", "a\x1b[2J.py", "a\x7f.py", "a\u202ecod.py", "a\u200b.py"),
        *("a\u2028.py", "a\ufeff.py", "a\u3164.py", "a\ud800.py", ".g\u200cit/config"),
        *(".git\ufe0f/config",),
    ),
    "space": ("a /b.py", " a.py", "a.py "),
    "dot": ("a./b.py", "a.py."),
    "255 bytes": ("x" * 256, "é" * 128),
    "1024 bytes": ("x/" * 600 + "a",),
    "git's own": (
        *(".git/config", "sub/.git/hooks/post-checkout", ".GIT/config", ".Git"),
        *(".git::$INDEX_ALLOCATION/config", ".git:x", "．git/config", ".ｇｉｔ/config"),
        *(".gitmodules", "a/.gitattributes", ".GitAttributes"),
    ),
    "short name": ("git~1/config", "GIT~2", "gi7eba~1", "GITHUB~1/WORKFL~1/ci.yml", "GITLAB~1.YML"),
    "start-up": (
        *("a/b.pyc", "__pycache__/a.cpython-311.PYC", "a/evil.pth", "sitecustomize.py"),
        *("lib/usercustomize/__init__.py", "SiteCustomize.py"),
    ),
    "metadata": ("x.egg-info/PKG-INFO", "x-1.0.dist-info/entry_points.txt"),
}


@pytest.mark.parametrize(("path", "why"), [(p, why) for why, all_ in REFUSED.items() for p in all_])
def test_refuses_and_says_why(path: str, why: str) -> None:
    refused = check_path(path, allow=("*",))
    assert isinstance(refused, RefusedPath)
    assert why in refused.reason


GUARDED = """
.github/workflows/ci.yml .github/workflows/deep/ci.yml .GitHub/Workflows/ci.yml .gitlab-ci.yml
Jenkinsfile .husky/pre-commit conftest.py tests/unit/conftest.py poetry.lock web/package-lock.json
Cargo.lock .gitlab-ci.yaml ci/build.gitlab-ci.yml .circleci/config.yml azure-pipelines.yml
deploy/azure-pipelines-release.yaml .azure-pipelines/build.yml .travis.yml Jenkinsfile.release
.pre-commit-config.yaml .lefthook.toml .vscode/tasks.json .devcontainer/devcontainer.json
.\uff47ithub/workflows/ci.yml .env deploy/.ENV.production certs/server.pem .venv/bin/python
sub/.VENV/pyvenv.cfg venv/x.py sub/venv/bin/pip env/bin/python3.11 tools/pyvenv.cfg .tox/py311/x
.nox/tests/x web/node_modules/.bin/eslint .direnv/python/x __pypackages__/3.11/lib/x.py
.vscode/settings.json sub/.vscode/extensions.json .idea/runConfigurations/x.xml shop.code-workspace
.exrc .nvim.lua .dir-locals.el sub/.Dir-Locals.el .vim/plugin/x.vim .claude/settings.json
.cursor/mcp.json .mcp.json .aider.conf.yml .continue/config.yaml AGENTS.md sub/CLAUDE.md
.github/copilot-instructions.md .yarnrc.yml .yarn/releases/yarn.cjs .pnpmfile.cjs
.mvn/extensions.xml gradle/wrapper/gradle-wrapper.properties sub/gradle/wrapper/gradle-wrapper.jar
gradlew mvnw.cmd .gitpod.yml .hg/hgrc .svn/wc.db .jj/repo/config.toml fixtures/bare/HEAD
.cargo/config crates/x/.cargo/config.toml .envrc .mise.toml .tool-versions .pdbrc
.\uff56scode/tasks.json .\u017fvn/wc.db
"""


@pytest.mark.parametrize("path", GUARDED.split())
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
    every = [name for one in PROTECTED for name in (*one.folders, *one.patterns)]
    assert [name for name in every if name != folded(name)] == []
    assert len(every) == len(set(every))


ORDINARY = """
src/hatch/venv/core.py Lib/venv/__init__.py src/virtualenv/run.py env/settings.py src/env.py
tests/node_modules.py src/vscode/tasks.json src/hooks/pre-render.ts hooks/post_gen_project.py
bin/pythonize bin/deploy src/head.py lib/HEAD.md gradle/build.gradle build.gradle.kts
settings.gradle pom.xml Cargo.toml cargo/config.toml src/cargo/config.rs config config.toml
mise/src/main.rs pyproject.toml package.json .eslintrc.json .prettierrc .editorconfig
.python-version .dockerignore Dockerfile docker-compose.yml setup.cfg .flake8 .coveragerc
src/agents.py agents/__init__.py docs/agents/index.md src/cursor.py claude/client.py continue.py
src/settings/base.py svn/reader.c hg/commands.py .bumpversion.cfg .github/ISSUE_TEMPLATE/bug.md
.github/CODEOWNERS .storybook/main.js src/activate.py templates/.circleci/config.yml
{{cookiecutter.name}}/src/a.py
"""


@pytest.mark.parametrize("path", ORDINARY.split())
def test_normal_sources_are_never_refused(path: str) -> None:
    assert check_path(path) == path


@pytest.mark.parametrize("path", ["```python", "a?.py", "a.py (new)|", "x<y>.py", "ab:c.py"])
def test_odd_signs_are_refused_for_new_files_only(path: str) -> None:
    assert check_path(path) == path
    assert isinstance(check_path(path, new=True), RefusedPath)


@example("./~")
@example("./C:x")
@given(st.text(max_size=60) | st.text("./\\~: git\u200c", max_size=12))
def test_what_is_taken_stays_inside_and_is_stable(path: str) -> None:
    checked = check_path(path)
    if isinstance(checked, str):
        parts = checked.split("/")
        assert "" not in parts
        assert ".." not in parts
        assert ".git" not in {part.casefold() for part in parts}
        assert check_path(checked) == checked
