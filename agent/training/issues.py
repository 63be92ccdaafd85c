"""The issues to learn from, with the functions that the evaluation would count as their answer.

A row's names are not the index's: a constructor is counted as its class, a function inside another
as that one, and some are gone at the base commit. Learning from the names as they are written would
call a sixth of the right answers wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.errors import RepositoryError
from agent.evaluation.dataset import Instance, is_for_tuning, load_dataset
from agent.evaluation.gold import find_gold, gold_paths
from agent.evaluation.repositories import find_repository, read_files
from agent.protocols import Chunker
from agent.training.projects import refusal


@dataclass(frozen=True, slots=True)
class Issue:
    """An issue, `functions` as they are counted, and the `texts` of their files by path."""

    instance: Instance
    functions: tuple[str, ...]
    texts: Mapping[str, str]


def tuning_issues(dataset: Path, repos: Path, chunker: Chunker) -> Iterator[Issue]:
    """Those of projects to tune on that change functions of a commit which is there."""
    for instance in load_dataset(dataset):
        if is_for_tuning(instance.repo) and not refusal(instance.repo):
            repository = find_repository(repos, instance.repo)
            found = None if repository is None else _issue(instance, repository, chunker)
            if found is not None:
                yield found


def _issue(instance: Instance, repository: Path, chunker: Chunker) -> Issue | None:
    try:
        texts = read_files(repository, instance.base_commit, gold_paths(instance))
    except RepositoryError:
        return None  # a fork or a shallow copy that lacks the commit
    functions = find_gold(instance, texts, chunker).functions
    return Issue(instance, functions, texts) if functions else None
