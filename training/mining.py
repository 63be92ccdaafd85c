"""Training pairs from the histories of public projects: commit message -> functions changed.

    python -m training.mining --repos DIR --output DIR [--projects owner/name ...]

A commit becomes a pair if its message is informative and it changes a few existing functions. The
functions are those of its first parent, selected by the rule that the evaluation uses.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from agent.errors import ConfigurationError, PatchshotError
from agent.retrieval.index.chunking import TreeSitterChunker
from training.extraction import CommitCandidate, candidates, make_pair
from training.history import ProjectHistory
from training.pairs import (
    Pair,
    PairsManifest,
    ProjectSummary,
    pairs_path,
    read_manifest,
    write_manifest,
    write_pairs,
)
from training.projects import chosen, discover, repository_of

RULES = 5
"""Increase with every change of the mined data: files of an older version are made again."""

COMMITS = 6_000
"""Newest commits read per project. Older code has another style."""

PAIRS = 2_500
"""Most pairs per project, so that large projects do not dominate."""

_BATCH = 100
"""Commits whose diffs and files are read with one call of git each."""


@dataclass(frozen=True, slots=True)
class MiningLimits:
    """Limits of what is read and kept per project."""

    commits: int = COMMITS
    pairs: int = PAIRS


def mine_project(repos: Path, repo: str, output: Path, limits: MiningLimits) -> ProjectSummary:
    """Mine one project and write its file. Raises RepositoryError if git cannot read it."""
    history = ProjectHistory(repository_of(repos, repo))
    commits = history.commits(limits.commits)
    merged = history.messages(sorted({commit.merged for commit in commits if commit.merged}))
    eligible = list(candidates(commits, merged, repo))
    kept: dict[int, Pair] = {}
    fixes_first = sorted(eligible, key=lambda c: (not c.message.fix, c.order))
    for order, pair in _pairs(history, repo, fixes_first):
        kept[order] = pair
        if len(kept) == limits.pairs:
            break
    pairs = [kept[order] for order in sorted(kept)]
    write_pairs(output, repo, pairs)
    return ProjectSummary(
        repo=repo,
        tip=history.tip(),
        rules=RULES,
        max_commits=limits.commits,
        max_pairs=limits.pairs,
        first=pairs[-1].commit if pairs else "",
        last=pairs[0].commit if pairs else "",
        seen=len(commits),
        eligible=len(eligible),
        kept=len(pairs),
        fixes=sum(pair.fix for pair in pairs),
        functions=sum(len(pair.functions) for pair in pairs),
        named=sum(bool(pair.names_in_message) for pair in pairs),
    )


def _pairs(
    history: ProjectHistory, repo: str, ranked: Sequence[CommitCandidate]
) -> Iterator[tuple[int, Pair]]:
    chunker = TreeSitterChunker()
    for at in range(0, len(ranked), _BATCH):
        batch = ranked[at : at + _BATCH]
        patches = history.patches(candidate.commit for candidate in batch)
        oids = {delta.old for candidate in batch for delta in candidate.sources}
        blobs = history.blobs(sorted(oids))
        for candidate in batch:
            patch = patches.get(candidate.commit.id, "")
            pair = make_pair(repo, candidate, patch, blobs, chunker)
            if pair is not None:
                yield candidate.order, pair


# ------------------------------------------------------------------------------------- all projects


def mine(
    repos: Path, projects: Sequence[str], output: Path, limits: MiningLimits, *, workers: int = 1
) -> PairsManifest:
    """Mine projects into `output`, and skip finished ones.

    Raises RepositoryError for a project that git cannot read; files written before stay.
    """
    output.mkdir(parents=True, exist_ok=True)
    manifest = read_manifest(output) or PairsManifest()
    done = {project.repo: project for project in manifest.projects}
    open_projects = [
        repo for repo in projects if not _is_done(repos, repo, output, limits, done.get(repo))
    ]
    started = time.monotonic()
    for number, summary in enumerate(_mined(repos, open_projects, output, limits, workers), 1):
        done[summary.repo] = summary
        manifest = PairsManifest(projects=tuple(done.values()))
        write_manifest(output, manifest)
        seconds = time.monotonic() - started
        _say(
            f"[{number}/{len(open_projects)} {seconds:.0f} s] {summary.repo}: {summary.kept} pairs "
            f"of {summary.seen} commits ({summary.eligible} eligible), {summary.fixes} fixes"
        )
    return manifest


def _is_done(
    repos: Path, repo: str, output: Path, limits: MiningLimits, summary: ProjectSummary | None
) -> bool:
    """Whether mining the project again would give the same file."""
    if summary is None or not pairs_path(output, repo).is_file():
        return False
    if (summary.rules, summary.max_commits) != (RULES, limits.commits):
        return False
    # A project below its limit already has all its pairs.
    same = limits.pairs == summary.max_pairs or summary.kept < min(limits.pairs, summary.max_pairs)
    return same and ProjectHistory(repository_of(repos, repo)).tip() == summary.tip


def _mined(
    repos: Path, projects: Sequence[str], output: Path, limits: MiningLimits, workers: int
) -> Iterator[ProjectSummary]:
    if workers == 1:
        yield from (mine_project(repos, repo, output, limits) for repo in projects)
        return
    with ProcessPoolExecutor(workers) as pool:
        jobs = [pool.submit(mine_project, repos, repo, output, limits) for repo in projects]
        for job in jobs:
            yield job.result()


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


# ------------------------------------------------------------------------------------- command line


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m training.mining",
        description="Training pairs from commit histories: message -> functions changed.",
        epilog="example: python -m training.mining --repos ~/mirror --output ~/pairs",
    )
    parser.add_argument(
        "--repos", type=Path, required=True, help="folder of repositories, owner+name each"
    )
    parser.add_argument("--output", type=Path, required=True, help="folder to write pairs to")
    parser.add_argument(
        "--projects", nargs="+", metavar="OWNER/NAME", help="only these (default: all allowed)"
    )
    parser.add_argument("--workers", type=int, default=1, help="processes (default: 1)")
    parser.add_argument(
        "--commits", type=int, default=COMMITS, help="newest of a project (default: %(default)s)"
    )
    parser.add_argument(
        "--pairs", type=int, default=PAIRS, help="at most of a project (default: %(default)s)"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = _arguments(argv)
    try:
        repos, limits = arguments.repos, MiningLimits(arguments.commits, arguments.pairs)
        if not repos.is_dir():
            raise ConfigurationError(f"--repos {repos}: no such folder; give one of repositories")
        if min(limits.commits, limits.pairs, arguments.workers) < 1:
            raise ConfigurationError("--commits, --pairs and --workers: give 1 or more")
        named = arguments.projects
        projects = chosen(repos, named) if named else discover(repos)
        manifest = mine(repos, projects, arguments.output, limits, workers=arguments.workers)
    except PatchshotError as error:
        _say(f"error: {error}")
        return error.status.exit_code
    total = sum(project.kept for project in manifest.projects)
    _say(f"{total} pairs of {len(manifest.projects)} projects in {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
