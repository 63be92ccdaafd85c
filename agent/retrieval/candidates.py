"""Which files may be targets: code that a patch would change, not what surrounds it."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import TYPE_CHECKING

from agent.repository.languages import is_generated_path, is_test_path, is_vendored_path
from agent.retrieval.identifiers import WORD

if TYPE_CHECKING:
    from agent.protocols import Snapshot
    from agent.retrieval.mentions import Mentions
    from agent.types import Problem, SourceFile

PROSE_AND_DATA = frozenset(
    {
        "markdown", "rst", "asciidoc", "tex", "toml", "yaml", "json", "notebook", "xml", "ini",
        "csv", "gettext", "diff", "text",
    }
)  # fmt: skip
"""Languages that are searched with less weight."""

_PATHS_KNOWN = 1 << 16  # remembered: every query of a process asks for all files of a repository
_ABOUT_TESTS = frozenset({"test", "tests", "testsuite", "flaky", "pytest", "unittest", "fixture"})


def candidate_files(
    snapshot: Snapshot, problem: Problem, mentions: Mentions
) -> tuple[SourceFile, ...]:
    """Files in path order without tests, vendored and generated code.

    Such a file stays when the problem is plainly about it: its path is in the title, or the title
    is about tests and the path is in the text. Where nothing else is there, all stay.
    """
    files = all_files(snapshot)
    named = _named_files(problem, mentions)
    kept = tuple(file for file in files if not _is_aside(file.path) or _names(named, file.path))
    return kept or files


def target_files(snapshot: Snapshot) -> tuple[SourceFile, ...]:
    """The same for no problem in particular: what is worth indexing ahead."""
    files = all_files(snapshot)
    return tuple(file for file in files if not _is_aside(file.path)) or files


def all_files(snapshot: Snapshot) -> tuple[SourceFile, ...]:
    """Every usable file in path order."""
    return tuple(snapshot.files[path] for path in sorted(snapshot.files))


@lru_cache(maxsize=_PATHS_KNOWN)
def _is_aside(path: str) -> bool:
    return is_test_path(path) or is_vendored_path(path) or is_generated_path(path)


def _named_files(problem: Problem, mentions: Mentions) -> frozenset[str]:
    """The mentioned paths that lift the ban."""
    about_tests = not _ABOUT_TESTS.isdisjoint(w.lower() for w in WORD.findall(problem.title))
    return frozenset(m.path for m in mentions.paths if about_tests or m.path in problem.title)


def _names(mentioned: Collection[str], path: str) -> bool:
    return any(path == mention or path.endswith("/" + mention) for mention in mentioned)
