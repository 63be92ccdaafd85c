"""Find a project's repository in the folder of `--repos`, and read files of a commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from agent.errors import ConfigurationError
from agent.repository import decode, open_repository


def check_folder(folder: Path) -> None:
    """Raise ConfigurationError if there is no such folder."""
    if not folder.is_dir():
        raise ConfigurationError(f"--repos {folder}: no such folder; give one with repositories")


def find_repository(folder: Path, repo: str) -> Path | None:
    """Return the repository of `owner/name`, None if there is none.

    Its folder is called `owner__name`, `owner+name` or `owner/name`, with or without `.git`.
    """
    owner, _, name = repo.partition("/")
    stems = (f"{owner}__{name}", f"{owner}+{name}", f"{owner}/{name}")
    paths = [folder / f"{stem}{end}" for stem in stems for end in ("", ".git")]
    return next((path for path in paths if path.is_dir()), None)


def read_files(repository: Path, commit: str, paths: Iterable[str]) -> Mapping[str, str]:
    """Return the text, with `\\n` line ends, of those of `paths` that are files of the commit.

    Raises RepositoryError if the repository is unusable or lacks the commit.
    """
    paths_by_name = {path.encode("utf-8", "surrogateescape"): path for path in paths}
    with open_repository(repository) as git:
        entries = [e for e in git.tree(git.resolve(commit), sizes=False) if e.path in paths_by_name]
        contents = git.blobs(sorted({entry.oid for entry in entries}))
    return {
        paths_by_name[entry.path]: decode(
            contents[entry.oid], cookie=entry.path.endswith(b".py")
        ).text
        for entry in entries
        if entry.oid in contents
    }
