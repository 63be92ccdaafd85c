"""Cases whose truth is exact: real changes, rendered in every shape, damaged in known ways."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.patching.cases import Case, Wanted
from benchmarks.patching.perturbing import PERTURBATIONS, Change, Draft, Perturbation, draft
from benchmarks.patching.rendering import SHAPES
from benchmarks.patching.repositories import Modified, Repository, find_repository

# Well-known projects of several languages; none is part of SWE-bench.
PROJECTS: Sequence[str] = (
    "pallets/click", "psf/black", "Textualize/rich", "aio-libs/aiohttp", "beetbox/beets",
    "PyCQA/astroid", "tornadoweb/tornado", "scrapy/scrapy", "dask/dask", "mitmproxy/mitmproxy",
    "bokeh/bokeh", "jupyter/notebook", "Qiskit/qiskit", "numpy/numpy", "wagtail/wagtail",
    "ansible/ansible",
)  # fmt: skip

_SUFFIXES = (".py", ".ts", ".js", ".rs", ".c", ".h", ".cpp", ".html", ".css", ".md", ".rst", ".yml")

# Commits looked at per project, and what counts as a small change to a file that is no giant.
_HISTORY = 2500
_LARGEST = 60_000
_MOST_LINES = 40

# Unchanged files put beside the edited one, so that paths can be confused.
_BESIDE = 4


def history_cases(corpora: Path, changes: int, each: int, seed: int) -> Iterator[Case]:
    """Cases of `changes` changes of every project that is there."""
    for project in PROJECTS:
        for change in real_changes(corpora, project, changes, seed):
            yield from cases_of(change, seed, each=each)


def real_changes(corpora: Path, project: str, count: int, seed: int) -> list[Change]:
    """`count` small changes of a project's history, chosen by the seed."""
    place = find_repository(corpora, project)
    if place is None:
        return []
    rng = random.Random(f"{seed}:{project}")
    repository = Repository(place)
    listed = [m for m in repository.modified(_HISTORY) if m.path.endswith(_SUFFIXES)]
    rng.shuffle(listed)
    found: list[Change] = []
    for one in listed:
        change = _change(repository, project, one, rng)
        if change is not None and draft(change) is not None:
            found.append(change)
        if len(found) == count:
            break
    return found


def _change(
    repository: Repository, project: str, one: Modified, rng: random.Random
) -> Change | None:
    old, new = (_text(repository.blob(blob)) for blob in (one.old, one.new))
    if not old or not new or not old.endswith("\n") or not new.endswith("\n"):
        return None
    if not 0 < len(set(old.split("\n")) ^ set(new.split("\n"))) <= _MOST_LINES:
        return None
    paths = [p for p in repository.paths(one.commit) if p.endswith(_SUFFIXES) and p != one.path]
    beside = {}
    for path in rng.sample(paths, min(_BESIDE, len(paths))):
        content = repository.blob(f"{one.commit}:{path}")
        if content is not None and len(content) <= _LARGEST:
            beside[path] = content
    return Change(f"{project}@{one.commit[:10]}:{one.path}", one.path, old, new, beside)


def _text(content: bytes | None) -> str | None:
    if content is None or len(content) > _LARGEST or b"\0" in content or b"\r" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def cases_of(
    change: Change, seed: int, *, corpus: str = "histories", each: int | None = None
) -> Iterator[Case]:
    """The change in every shape: unharmed, and with `each` perturbations (None: with all)."""
    for shape in SHAPES:
        fitting = [p for p in PERTURBATIONS if shape in p.shapes]
        rng = random.Random(f"{seed}:{change.id}:{shape}")
        rest = fitting[1:] if each is None else rng.sample(fitting[1:], min(each, len(fitting) - 1))
        for perturbation in (fitting[0], *rest):
            case = _case(change, shape, perturbation, seed, corpus)
            if case is not None:
                yield case


def _case(
    change: Change, shape: str, perturbation: Perturbation, seed: int, corpus: str
) -> Case | None:
    name = f"{change.id}#{shape}#{perturbation.name}"
    rng = random.Random(f"{seed}:{name}")
    base = draft(change, context=perturbation.context)
    changed = perturbation.change(base, rng) if base else None
    if changed is None:
        return None
    reply = SHAPES[shape](changed, rng)
    if changed.slip == "cut":
        reply = _cut_off(reply, changed, shape, rng)
    wanted = changed.wanted
    if shape == "whole" and "```" in changed.whole and wanted is Wanted.APPLY:
        wanted = Wanted.EITHER  # where the file ends is a guess
    return Case(
        name, corpus, perturbation.name, shape, reply, changed.files, wanted, changed.after,
        changed.likeness, finish_reason=changed.finish_reason,
    )  # fmt: skip


def _cut_off(reply: str, changed: Draft, shape: str, rng: random.Random) -> str:
    """The reply up to a place inside its last piece (a whole file: inside the file)."""
    if shape == "whole":
        start = reply.find(changed.whole)
        return reply[: start + rng.randrange(len(changed.whole) // 2, len(changed.whole) - 1)]
    share = len(reply.rstrip("`\n]} ")) / max(1, len(changed.pieces))
    end = len(reply.rstrip('`\n]} "')) - len(">>>>>>>>> REPLACE")
    return reply[: max(1, end - rng.randrange(max(1, int(share / 2))))]
