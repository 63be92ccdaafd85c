"""Finds the failing tests that a reply calls outdated, and their edited versions. Pure.

Replies name tests as the runs do (`tests/test_x.py::Case::test_y`), as unittest prints them
(`test_y (tests.test_x.Case)`), by dotted names, by the file of a Go test, by `FooTest#method`, with
other marks between the titles of JavaScript, or by a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import PurePosixPath

from agent.patching import with_function
from agent.repository import language_of
from agent.types import FileChange, OutdatedTest
from agent.types.protocols import Snapshot
from agent.verify.judging.edited_tests import with_script_test

_PRINTED = re.compile(r"(?P<method>\w+) \((?P<case>[\w.]+)\)")
_MARKS = re.compile(r"[\s.:#>›»]+")
_SCRIPTS = ("javascript", "typescript", "tsx")


def declared_for(
    failing: Sequence[str],
    declared: Sequence[OutdatedTest],
    as_run: Callable[[str], str] = str,
) -> Mapping[str, OutdatedTest]:
    """Return the failing tests that are called outdated; an id covers all its parameters.

    `as_run` converts names that the runner prints into ids. The closest name counts. A name without
    a path counts if it fits one function only.
    """
    found: dict[str, tuple[int, OutdatedTest]] = {}
    for one in declared:
        for rank, tests in enumerate(_meant(one.id, as_run(one.id), failing)):
            for test in tests:
                found.setdefault(test, (rank, one))
                if found[test][0] > rank:
                    found[test] = (rank, one)
    return {test: found[test][1] for test in failing if test in found}


def _meant(given: str, as_run: str, failing: Sequence[str]) -> tuple[list[str], ...]:
    """Return the tests that a name means: by the whole id, the function, the end, or the file."""
    names = {_plain(given), _plain(as_run)}
    whole = [test for test in failing if _plain(test) in names]
    function = [test for test in failing if _plain(_function(test)) in names]
    wanted = _words(given)
    end = [test for test in failing if _words(_function(test))[-len(wanted) :] == wanted]
    end += [test for test in failing if _in_folder(test, given)]
    if len({_function(test) for test in end}) > 1:
        end = []
    path = given.strip().removeprefix("./")
    return whole, function, end, [t for t in failing if t.partition("::")[0] == path]


def _plain(test: str) -> str:
    """Return an id with one mark between its names, of which models write several."""
    path, colons, name = test.strip().removeprefix("./").partition("::")
    return f"{path}{colons}{_MARKS.sub(' ', name).strip()}"


def _function(test: str) -> str:
    """Return an id without parameters; of Go, where a folder stands for the path, no subtests."""
    path, colons, name = test.partition("[")[0].partition("::")
    return f"{path}{colons}{name if PurePosixPath(path).suffix else name.partition('/')[0]}"


def _words(test: str) -> list[str]:
    printed = _PRINTED.fullmatch(test.strip())
    if printed is not None:
        case, method = printed["case"], printed["method"]
        test = f"{case.removesuffix(f'.{method}')}.{method}"
    path, colons, name = test.strip().partition("::")
    if colons:
        path = str(PurePosixPath(path).with_suffix("")) if path else ""
    return [word for word in re.split(r"[\s.:#>›»/]+", f"{path}{colons}{name}") if word]


def _in_folder(test: str, given: str) -> bool:
    """Whether `folder::TestX` is the `folder/file::TestX` of a reply."""
    path, colons, name = given.strip().partition("::")
    folder, _, function = _function(test).partition("::")
    return bool(colons) and PurePosixPath(path).parent == PurePosixPath(folder) and name == function


def placed_test(name: str, files: Collection[str]) -> str:
    """Return the id of a test with the path of its file, where that follows from a dotted name."""
    if "::" in name:
        return name
    words = _words(name)
    for end in range(len(words) - 1, 0, -1):
        stem = "/".join(words[:end])
        fits = [p for p in files if f"/{p.rpartition('.')[0]}".endswith(f"/{stem}")]
        if len(fits) == 1:
            return f"{fits[0]}::{'::'.join(words[end:])}"
    return name


def edited_versions(
    declared: Mapping[str, OutdatedTest], snapshot: Snapshot
) -> tuple[tuple[FileChange, ...], tuple[str, ...]]:
    """Return the test files with the edited versions of outdated tests, and the ids of these."""
    texts, ids = dict[str, str](), []
    for test, one in sorted(declared.items()):
        folder, _, name = _function(test).partition("::")
        if not (one.replacement.strip() and name):
            continue
        for path in _files_of(folder, snapshot):
            text = texts.get(path, snapshot.text(path))
            new = _with_test(text, path, name, one.replacement)
            if new is not None:
                texts[path] = new
                ids.append(test)
                break
    changes = (
        FileChange(path, snapshot.read(path), text.encode("utf-8", "surrogateescape"))
        for path, text in sorted(texts.items())
    )
    return tuple(changes), tuple(ids)


def _files_of(path: str, snapshot: Snapshot) -> list[str]:
    """Return the file of a test; of Go, the test files of its package."""
    if path in snapshot.files:
        return [path]
    tests = (p for p in snapshot.files if p.endswith("_test.go"))
    return [p for p in tests if PurePosixPath(p).parent == PurePosixPath(path)]


def _with_test(text: str, path: str, name: str, new: str) -> str | None:
    language = language_of(path)
    if language in _SCRIPTS:
        return with_script_test(text, name, new)
    return with_function(text, language, name.replace("::", "."), new)
