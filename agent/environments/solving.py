"""The environment of a run's own target, by the settings: for `agent solve` and `agent batch`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agent.environments.history import history_of
from agent.environments.metadata import static_version
from agent.environments.preparing import Environments, project_of
from agent.environments.spec import read_spec
from agent.protocols import Snapshot
from agent.repository.git import open_repository
from agent.settings import Settings
from agent.validation.running.surroundings import Surroundings


def target_of(
    settings: Settings, snapshot: Snapshot, note: Callable[[str], None]
) -> tuple[Path | None, Surroundings]:
    """The interpreter for the tests of a snapshot, and what stands around them.

    It is made where it is not there yet; `note` is told. Without a spec: what the settings say.
    `--python`, and an image, win over Python and packages of the spec. Raises ConfigurationError.
    """
    if settings.environments is None:
        return settings.python, Surroundings()
    spec = read_spec(settings.environments)
    environments = Environments(spec, settings.cache_dir, note=note)
    project = settings.project or project_of(snapshot.root, spec)
    version = static_version(project.partition("/")[2], snapshot)
    with open_repository(snapshot.root) as git:
        environment = environments.environment(
            project, version, holds=history_of(git, snapshot.commit)
        )
    if settings.python is not None or settings.image is not None:
        return settings.python, environments.surroundings(environment, snapshot)
    prepared = environments.prepare(environment, snapshot)
    note(f"environment of {project or 'every project'}: {prepared.words}")
    return prepared.python, prepared.surroundings
