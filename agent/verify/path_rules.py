"""Rules about paths: which files are tests, and how a Python file is imported. Pure.

`agent.repository.is_test_path`: does the file belong to the tests, as fixtures do? `is_test_file`:
does it hold tests that a runner can be given? `is_test_side`: can it not be part of a fix?
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import PurePosixPath
from types import MappingProxyType

from agent.repository import is_test_path, language_of
from agent.types import FileChange, ReproductionTest

_TESTS = re.compile(rb"^\s*(?:async\s+)?def test|\bTestCase\b", re.MULTILINE)
# The last line: a script deep below a folder of tests, but for what tests read and share.
_SCRIPT_TEST = re.compile(
    r"(?:[._-](?:tests?|specs?|e2e|cy)|[a-z]Spec)\.[cm]?[jt]sx?$|(?:^|/)tests?[.-][^/]*$|(?:^|/)tests?\.[cm]?[jt]sx?$"
    r"|(?:^|/)__tests__/(?:[^/]+/)*[^_./][^/]*$|(?:^|/)tests?/[^/]*[^/._-][^/]*$"
    r"|(?:^|/)(?:tests?|specs?)/(?!(?:.*/)?(?:_[^/]*|fixtures?|helpers?|utils?|support|tools"
    r"|mocks?|stubs?|data|resources|shared|common|setup|config)[/.])(?:.*/)?[^/._][^/]*$"
)

# By language: a file of the language that holds tests. Searched in the whole path. In these
# languages a reply may bring a test of its own.
_TEST_FILES = MappingProxyType(
    {
        "python": re.compile(r"(?i)(?:^|/)(?:test_[^/]*|[^/]*_tests?|tests?)\.py$"),
        "javascript": _SCRIPT_TEST,
        "typescript": _SCRIPT_TEST,
        "tsx": _SCRIPT_TEST,
        "go": re.compile(r"[^/]_test\.go$"),
        # Cargo makes a test program of each file in `tests`; those in its folders are helpers.
        "rust": re.compile(
            r"(?:^|/)tests/[^/]+(?:/main)?\.rs$|(?:^|/)(?:\w*_)?tests?\.rs$|(?:^|/)test_\w+\.rs$"
        ),
        # What surefire takes by default (its documentation, "Inclusions"), and JUnit's `IT`.
        "java": re.compile(r"(?:^|/)(?:Test\w*|\w*(?:Test|Tests|TestCase|IT))\.java$"),
    }
)

# The end of a file name by which runners recognise a test.
_MARK = re.compile(
    r"[._-](?:test|spec|e2e|cy)\.[cm]?[jt]sx?$|_test\.go$|_tests?\.(?:py|rs)$"
    r"|(?:Tests?|TestCase|IT)\.java$"
)

# Folders on the import path that are not part of a module's name.
_SOURCE_FOLDERS = ("src", "lib", "python")

# Files that configure test runs, by name. A change to them can make a test pass without a fix.
_CONFIGURATION = re.compile(
    r"conftest\.py|\.?pytest\.(?:ini|toml)|tox\.(?:ini|toml)|setup\.cfg|pyproject\.toml"
    r"|(?:site|user)customize\.py|noxfile\.py|nose2\.cfg|unittest\.cfg|\.(?:coverage|nose)rc"
    r"|run_?tests?(?:\.(?:py|sh|js))?|(?:gnu)?makefile|makefile\..*|.*\.mk|\.?justfile"
    r"|taskfile\.ya?ml|(?:jest|vitest|vite|ava|karma|cypress|playwright|babel|wdio)\.config\.\w+"
    r"|(?:jest|vitest|test)[.-]?setup\.\w+|setup-?tests?\.[cm]?[jt]sx?|vitest\.workspace\.\w+"
    r"|\.(?:mocha|babel|nyc|c8|tap|swc|jasmine|jest)rc(?:\.\w+)?|mocha\.opts|jasmine\.json"
    r"|[jt]sconfig(?:\..+)?\.json|\.npmrc|\.yarnrc(?:\.yml)?|\.pnp\..+|bunfig\.toml|deno\.jsonc?"
    r"|import_map\.json|package\.json|cargo\.toml|build\.rs|rust-toolchain(?:\.toml)?"
    r"|nextest\.toml|go\.(?:mod|work)|pom\.xml|(?:build|settings)\.gradle(?:\.kts)?"
    r"|gradle\.properties|libs\.versions\.toml|junit-platform\.properties|testng\.xml",
    re.IGNORECASE,
)

# The same by the place of a file: settings of tools, and libraries that the tests use.
_CONFIGURATION_PLACE = re.compile(
    r"^\.patchshot-(?:packages|build)/|(?:^|/)(?:\.cargo|\.mvn|node_modules)/|(?:^|/)META-INF/services/org\.(?:junit|testng)\."
    r"|(?:^|/)vendor/(?:.*\.(?:go|rs)|modules\.txt)$|^bin/test$"
)

# Folders and names of what tests compare with or feed to the code. `is_test_path` knows further
# ones, by which retrieval ranks too.
_EXPECTED = re.compile(
    r"(?:^|/)(?:__fixtures__|fixtures?|goldens?|golden[_-]files?|snapshots|cassettes"
    r"|test[_-]?(?:data|files|fixtures|resources|cases))/"
    r"|\.(?:snap|golden|ambr)$|\.approved\.\w+$"
)


def is_python_test(path: str) -> bool:
    """Whether a Python file holds tests by its name: `test_x.py`, `x_test.py`, `tests.py`."""
    return _TEST_FILES["python"].search(path) is not None


def is_test_file(path: str) -> bool:
    """Whether a file holds tests, by its name or, where the language does that, its folder."""
    rule = _TEST_FILES.get(language_of(path))
    return rule is not None and rule.search(path) is not None


def is_test_side(path: str) -> bool:
    """Whether a file belongs to the tests or configures them, so that it cannot fix an issue."""
    of_tests = is_test_path(path) or is_python_test(path)
    return of_tests or _EXPECTED.search(path) is not None or steers_tests(path)


def is_test_by_ending(path: str) -> bool:
    """Whether `x_tests.py`, its name alone, is why a file counts as a test: no runner takes it."""
    return path.endswith("_tests.py") and is_python_test(path) and not is_test_path(path)


def is_test_change(change: FileChange) -> bool:
    """Whether a change is on the side of the tests. `weak_tests.py` without a test is source."""
    if is_test_by_ending(change.path) and change.before is not None:
        return _TESTS.search(change.before) is not None
    return is_test_side(change.path)


def steers_tests(path: str) -> bool:
    """Whether the file configures the test run itself, by its name or place."""
    name = path.rpartition("/")[2]
    by_name = _CONFIGURATION.fullmatch(name) is not None
    return by_name or _CONFIGURATION_PLACE.search(path) is not None


def module_name(path: str) -> str:
    """Return the name under which a Python file is imported: `pkg.mod` for `src/pkg/mod.py`."""
    parts = list(PurePosixPath(path).with_suffix("").parts)
    if len(parts) > 1 and parts[0] in _SOURCE_FOLDERS:
        del parts[0]
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def import_root(path: str, exists: Callable[[str], bool]) -> str:
    """Return the folder that must be on the import path for the file; "." is the root."""
    folder = PurePosixPath(path).parent
    while folder.name and exists(f"{folder}/__init__.py"):
        folder = folder.parent
    return str(folder)


def free_path(path: str, taken: Callable[[str], bool]) -> str:
    """Return the path, or the first of `stem_2.py`, `stem_3.py`, ... that is not taken."""
    pure, candidate, number = PurePosixPath(path), path, 1
    parts = _MARK.search(pure.name)
    mark = parts.start() if parts else len(pure.stem)
    while taken(candidate):
        number += 1
        candidate = str(pure.with_name(f"{pure.name[:mark]}_{number}{pure.name[mark:]}"))
    return candidate


# What a name begins with by which runners recognise a test.
_PREFIX = re.compile(r"(?:test[._-]|Test(?=[A-Z]))?")


def new_test_path(path: str) -> str:
    """Return a path for another test in the folder of a test file, named like it."""
    pure = PurePosixPath(path)
    mark, prefix = _MARK.search(pure.name), _PREFIX.match(pure.name)
    name = "issue-example" if "-" in pure.name else "issue_example"
    name = "IssueExample" if pure.suffix == ".java" else name
    end = mark[0] if mark else pure.suffix
    return str(pure.with_name(f"{prefix[0] if prefix else ''}{name}{end}"))


def new_test_file(test: ReproductionTest, taken: Callable[[str], bool]) -> ReproductionTest | str:
    """Return a model's test at a free path, or why it cannot be used."""
    path, refusal = free_path(test.path, taken), unsafe(test.path)
    content = rename_class(test.content.encode("utf-8", "surrogateescape"), test.path, path)
    return refusal or ReproductionTest(path, content.decode("utf-8", "surrogateescape"))


def rename_class(content: bytes, path: str, new_path: str) -> bytes:
    """Return a test file's content for a new path: a Java class is named like its file."""
    if language_of(path) != "java":
        return content
    old, new = (PurePosixPath(one).stem.encode() for one in (path, new_path))
    return re.sub(rb"\b" + re.escape(old) + rb"\b", lambda _: new, content)


def other_path(path: str, content: bytes) -> str:
    """Return another path in the folder of a test file; Python files are replayed, and keep it."""
    pure = PurePosixPath(path)
    if language_of(path) not in _TEST_FILES.keys() - {"python"}:
        return path
    mark, digest = _MARK.search(pure.name), hashlib.sha256(content).hexdigest()[:8]
    start = "Test" if pure.suffix == ".java" else "test_"
    other = str(pure.with_name(f"{start}{digest}{mark[0] if mark else pure.suffix}"))
    return other if is_test_file(other) else path


def unsafe(path: str) -> str | None:
    """Return why a model's test path cannot be used; None for a relative path of a test file."""
    parts = path.split("/")
    if language_of(path) not in _TEST_FILES or parts[-1] == ".py":
        return "it is not a .py file, nor a test in another language whose tests can be run"
    if not path.endswith(".py") and not is_test_file(path):
        return "nothing in its name says that it is a test"
    if path.startswith("/") or "\\" in path or any(part in ("", ".", "..") for part in parts):
        return "it does not stay inside the repository"
    if not path.isprintable() or any(
        part.lower().strip(" .") in ("git", "git~1") for part in parts
    ):
        return "it has characters or names that are not allowed"
    if steers_tests(path):
        return "it would configure the test run"
    return None
