"""Mines the projects of a spec: candidates from their histories, kept where their tests agree."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.datasets import find_repository
from agent.errors import ConfigurationError, PatchshotError
from agent.repository.git import open_repository
from agent.repository.snapshot import take_snapshot
from agent.types import KnownTests
from agent.verify.environments import Environments
from benchmarks.instances.history import Repair, diff, repairs
from benchmarks.instances.verifying import Prepared, Rejected, prepare, verify
from sandbox.types import Sandbox, SandboxError
from training.projects import EXAM_PROJECTS

_SHORT = 10  # digits of a commit in an id


@dataclass(frozen=True, slots=True)
class Wanted:
    """How much of each project: `most` instances of the last `commits`, at most `tries` run."""

    most: int = 4
    commits: int = 1_500
    tries: int = 20


@dataclass(frozen=True, slots=True)
class Mine:
    """Where things come from, and where rows go. `rejected` notes what need not be tried again."""

    repositories: Path
    output: Path
    environments: Environments
    sandbox: Sandbox
    wanted: Wanted

    @property
    def rejected(self) -> Path:
        """Beside the output: ids and reasons, a line each."""
        return self.output.with_suffix(".rejected.jsonl")

    def project(self, repo: str) -> int:
        """Append the instances of a project; how many it has now.

        Raises ConfigurationError: a project of SWE-bench, no repository, no environment.
        """
        if repo.lower() in {name.lower() for name in EXAM_PROJECTS}:
            raise ConfigurationError(f"{repo}: SWE-bench asks about it; leave it out")
        path = find_repository(self.repositories, repo)
        if path is None:
            raise ConfigurationError(f"{repo}: not in {self.repositories}; clone it there")
        known = set(_ids(self.output))
        refused = set(_ids(self.rejected))
        count = sum(name.startswith(_prefix(repo)) for name in known)
        tries = 0
        for repair in self._repairs(path, repo):
            name = _prefix(repo) + repair.commit[:_SHORT]
            if count >= self.wanted.most or tries >= self.wanted.tries:
                break
            if name in known | refused:
                continue
            tries += 1
            count += self._try(path, repo, name, repair)
        return count

    def _repairs(self, path: Path, repo: str) -> Iterator[Repair]:
        with open_repository(path) as git:
            yield from repairs(git, repo, "HEAD", self.wanted.commits)

    def _try(self, path: Path, repo: str, name: str, repair: Repair) -> bool:
        snapshot = take_snapshot(path, commit=repair.parent)
        around = prepare(self.environments, repo, snapshot)  # none at all: not its fault
        try:
            found = verify(path, snapshot, repair, around, self.sandbox)
        except (PatchshotError, SandboxError) as error:
            found = Rejected(str(error))
        if isinstance(found, Rejected):
            _append(self.rejected, {"instance_id": name, "reason": found.reason})
            _say(f"{name}: {found.reason}")
            return False
        _append(self.output, row(path, repo, name, repair, found, around))
        _say(f"{name}: {len(found.fail_to_pass)} turn, {len(found.pass_to_pass)} go on passing")
        return True


def row(
    path: Path, repo: str, name: str, repair: Repair, known: KnownTests, around: Prepared
) -> dict[str, object]:
    """A row of the data set, by the field names of SWE-bench. Raises RepositoryError."""
    with open_repository(path) as git:
        source = diff(git, repair.commit, repair.parts.sources)
        tests = diff(git, repair.commit, repair.parts.tests)
    return {
        "instance_id": name,
        "repo": repo,
        "base_commit": repair.parent,
        "problem_statement": repair.problem,
        "patch": source,
        "test_patch": tests,
        "FAIL_TO_PASS": list(known.fail_to_pass),
        "PASS_TO_PASS": list(known.pass_to_pass),
        "environment": {"about": around.words},
    }


def _prefix(repo: str) -> str:
    return f"{repo.replace('/', '__')}-"


def _ids(path: Path) -> Iterator[str]:
    if path.exists():
        for line in path.read_text("utf-8").splitlines():
            yield str(json.loads(line)["instance_id"])


def _append(path: Path, value: dict[str, object]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(value, ensure_ascii=False) + "\n")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
