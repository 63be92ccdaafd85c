"""Limits retrieval to the scope of a snapshot, and to what its files need from outside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent.repository import is_below, is_vendored_path, narrowed
from agent.retrieval.ranking.mentions import clean_path, read_mentions

if TYPE_CHECKING:
    from agent.types import Problem
    from agent.types.protocols import Snapshot

# Lines that may import something, with the line end before them.
_IMPORTING = re.compile(
    r"\n[ \t]*(?=(?:from|import|use|pub|mod|const|let|var|export|require|include|using"
    r"|#[ \t]*include|\}[ \t]*from)\b)"
)

_SCRIPTS = frozenset({"javascript", "typescript", "tsx", "vue", "svelte"})


def in_scope(problem: Problem, snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the files of its scope, and those outside that belong to it.

    These are the files that a file of the scope imports, and those that the problem names by path.
    Without a scope it is the snapshot itself.
    """
    if not snapshot.scope:
        return snapshot
    mine = {path for path in snapshot.files if is_below(snapshot.scope, path)}
    more = {*_imported(snapshot, mine), *_named(problem, snapshot, mine)}
    return narrowed(snapshot, mine | more)


def _named(problem: Problem, snapshot: Snapshot, mine: set[str]) -> Iterator[str]:
    """Yield the files outside that the problem names by path; a bare file name names none.

    A path that may be one of the scope's own files names no other file.
    """
    mentions = read_mentions(problem)
    frames = [clean_path(frame.path) for frame in mentions.frames]
    for name in dict.fromkeys((*(one.path for one in mentions.paths), *frames)):
        if name in snapshot.files:
            yield name
        elif "/" in name and not any(path.endswith(f"/{name}") for path in mine):
            yield from (path for path in snapshot.files if _is_end(path, name))


def _is_end(path: str, name: str) -> bool:
    """Whether one is the end of the other: traces name files by their place on some machine."""
    return path.endswith(f"/{name}") or ("/" in path and name.endswith(f"/{path}"))


def _imported(snapshot: Snapshot, mine: set[str]) -> Iterator[str]:
    """Yield the files outside that a file of the scope imports, in the same language."""
    from agent.retrieval.index import ModuleTable, imports

    paths = [path for path in snapshot.files if path in mine or not is_vendored_path(path)]
    modules = ModuleTable(paths)
    for number, path in enumerate(paths):
        if path not in mine:
            continue
        text, language = f"\n{snapshot.text(path)}", snapshot.files[path].language
        starts = (match.start() + 1 for match in _IMPORTING.finditer(text))
        for line in imports(text, starts, language):
            found = [paths[one] for one in modules.find(line, number)]
            yield from (one for one in found if _may_import(language, snapshot, one))


def _may_import(language: str, snapshot: Snapshot, path: str) -> bool:
    other = snapshot.files[path].language
    return other == language or {other, language} <= _SCRIPTS
