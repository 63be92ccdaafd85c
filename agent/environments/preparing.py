"""From a spec to what a validation needs: the interpreter, and what stands around the tests."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from pathlib import Path

from agent.environments.building import Built, Recipe, build
from agent.environments.commands import suite_of
from agent.environments.metadata import UNKNOWN_VERSION, dist_info, static_version
from agent.environments.pythons import HostPython, find_python
from agent.environments.spec import Environment, EnvironmentSpec
from agent.errors import ConfigurationError
from agent.protocols import Snapshot
from agent.validation.running.surroundings import Surroundings

# Below the cache folder.
FOLDER = "environments"


@dataclass(frozen=True, slots=True)
class Prepared:
    """`words` say in one line what it is; `installed` are its packages, `name==version`."""

    python: Path
    surroundings: Surroundings
    words: str
    installed: tuple[str, ...] = ()


class Environments:
    """Makes each environment of a spec once. Safe to use from several threads.

    What could not be built is not tried again by the same object.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        cache: Path,
        *,
        note: Callable[[str], None] = lambda _: None,
        cancel: threading.Event | None = None,
    ) -> None:
        self._spec = spec
        self._folder = cache.absolute() / FOLDER
        self._note = note
        self._cancel = cancel
        self._lock = threading.Lock()
        self._missing: set[str] = set()
        self._pythons: dict[str, HostPython] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._built: dict[str, Built | ConfigurationError] = {}

    def environment(
        self, project: str, version: str = "", *, holds: Callable[[str], bool] | None = None
    ) -> Environment:
        """What the spec says of a project; see `EnvironmentSpec.environment`."""
        return self._spec.environment(project, version, holds=holds)

    def prepare(self, environment: Environment, snapshot: Snapshot, version: str = "") -> Prepared:
        """The environment for the tests of a tree; `version` is what its data set's row says.

        Raises ConfigurationError: no such Python, packages that cannot be installed, a test command
        that cannot be used.
        """
        surroundings = self.surroundings(environment, snapshot, version)
        recipe = Recipe(
            self._python(environment.python),
            environment.packages,
            environment.index,
            environment.find_links,
            environment.sdist,
        )
        built = self._build(recipe)
        words = f"Python {recipe.python.version}, {len(built.installed)} packages ({recipe.key})"
        return Prepared(built.python, surroundings, words, built.installed)

    def surroundings(
        self, environment: Environment, snapshot: Snapshot, version: str = ""
    ) -> Surroundings:
        """All of it but the interpreter: what is left to say where an image brings that.

        Raises ConfigurationError for a test command that cannot be used.
        """
        suite = suite_of(environment.test, snapshot)
        files = _files(environment, snapshot, version)
        self._tell_missing(environment, {*snapshot.files, *files})
        return Surroundings(suite, environment.env, environment.paths, files)

    def _tell_missing(self, environment: Environment, files: Collection[str]) -> None:
        """A note, once, for each folder of `paths` that the tree has not."""
        for path in environment.paths:
            if path == "." or any(file.startswith(f"{path}/") for file in files):
                continue
            with self._lock:
                new = path not in self._missing
                self._missing.add(path)
            if new:
                self._note(f"environment: paths has {path!r}, which is no folder of the project")

    def _python(self, name: str) -> HostPython:
        with self._lock:
            if name not in self._pythons:
                self._pythons[name] = find_python(name)
            return self._pythons[name]

    def _build(self, recipe: Recipe) -> Built:
        key = recipe.key
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            known = self._built.get(key)
            if known is None:
                known = self._tried(recipe)
                self._built[key] = known
        if isinstance(known, ConfigurationError):
            raise known
        return known

    def _tried(self, recipe: Recipe) -> Built | ConfigurationError:
        try:
            return build(recipe, self._folder, note=self._note, cancel=self._cancel)
        except ConfigurationError as error:
            return error


def digest_of(environment: Environment) -> str:
    """Names what an environment says, SHA-256 in hex: results of another one are not its own."""
    text = json.dumps(asdict(environment), sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def project_of(repository: Path, spec: EnvironmentSpec) -> str:
    """`owner/name` of a repository by where it lies, as far as the spec knows it; else "".

    The folder is named `owner__name`, `owner+name` or `owner/name`, with or without `.git`, or like
    the one project of the spec with that name.
    """
    path = repository.absolute()
    name = path.name.removesuffix(".git")
    for separator in ("__", "+"):
        owner, found, rest = name.partition(separator)
        if found and spec.names(f"{owner}/{rest}"):
            return f"{owner}/{rest}"
    nested = f"{path.parent.name}/{name}"
    return nested if spec.names(nested) else spec.called(name)


def _files(environment: Environment, snapshot: Snapshot, version: str) -> dict[str, bytes]:
    name = environment.metadata
    known = environment.version or static_version(name or "", snapshot) or version
    number = known or UNKNOWN_VERSION
    files = {
        path: text.replace("{version}", number).encode("utf-8", "surrogatepass")
        for path, text in environment.files.items()
    }
    if name:
        files.update(dist_info(name, number, snapshot))
    return files
