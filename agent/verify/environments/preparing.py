"""Prepares what a spec says: the interpreter, and the surroundings of the tests."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath

from agent.errors import ConfigurationError
from agent.repository import GitRepository, open_repository
from agent.settings import Settings
from agent.types.protocols import Snapshot
from agent.verify import COMMAND, RUNNERS, ProjectSetup, Suite
from agent.verify.environments.building import (
    BuiltEnvironment,
    HostPython,
    Recipe,
    build_environment,
    find_python,
)
from agent.verify.environments.metadata import UNKNOWN_VERSION, make_dist_info, read_static_version
from agent.verify.environments.spec import Environment, EnvironmentSpec, read_spec

# The folder of environments below the cache folder.
FOLDER = "environments"

# More commits than any project has.
_MOST_COMMITS = 10_000_000

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_WHY = "the environment's test command"

# Runners whose settings are read from the tree, by the end of the script's path.
_BY_SCRIPT = (("runtests.py", "django"), ("manage.py", "django"))


def prepare_target(
    settings: Settings,
    snapshot: Snapshot,
    note: Callable[[str], None],
    project: str | None = None,
) -> tuple[Path | None, ProjectSetup]:
    """Return the interpreter for the tests of a run's target, and their surroundings.

    `project` is the target's name in the spec. Builds the environment if it is missing, and tells
    `note`. Without a spec, the settings decide. `--python` and an image take precedence over Python
    and packages of the spec. Raises ConfigurationError.
    """
    if settings.environments is None:
        return settings.python, ProjectSetup()
    spec = read_spec(settings.environments)
    environments = Environments(spec, settings.cache_dir, note=note)
    project = project or find_project(snapshot.root, spec)
    version = read_static_version(project.partition("/")[2], snapshot)
    with open_repository(snapshot.root) as git:
        environment = environments.environment(
            project, version, holds=make_ancestor_check(git, snapshot.commit)
        )
    if settings.python is not None or settings.image is not None:
        return settings.python, environments.surroundings(environment, snapshot)
    prepared = environments.prepare(environment, snapshot)
    note(f"environment of {project or 'every project'}: {prepared.words}")
    return prepared.python, prepared.surroundings


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared environment. `words` describe it in one line; `installed` are `name==version`."""

    python: Path
    surroundings: ProjectSetup
    words: str
    installed: tuple[str, ...] = ()


class Environments:
    """Makes each environment of a spec once. Safe to use from several threads.

    The same object does not try again to build what it could not build.
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
        self._built: dict[str, BuiltEnvironment | ConfigurationError] = {}

    def environment(
        self, project: str, version: str = "", *, holds: Callable[[str], bool] | None = None
    ) -> Environment:
        """Return what the spec says about a project; see `EnvironmentSpec.environment`."""
        return self._spec.environment(project, version, holds=holds)

    def prepare(self, environment: Environment, snapshot: Snapshot, version: str = "") -> Prepared:
        """Prepare the environment for the tests of a tree; `version` is that of its data set's row.

        Raises ConfigurationError for a missing Python, packages that cannot be installed, or an
        unusable test command.
        """
        surroundings = self.surroundings(environment, snapshot, version)
        recipe = Recipe(
            self._python(environment.python),
            environment.packages,
            environment.index,
            environment.find_links,
            environment.sdist,
        )
        built = self._build_once(recipe)
        words = f"Python {recipe.python.version}, {len(built.installed)} packages ({recipe.key})"
        return Prepared(built.python, surroundings, words, built.installed)

    def surroundings(
        self, environment: Environment, snapshot: Snapshot, version: str = ""
    ) -> ProjectSetup:
        """Return all but the interpreter, which an image may bring.

        Raises ConfigurationError for an unusable test command.
        """
        suite = choose_suite(environment.test, snapshot)
        files = _files(environment, snapshot, version)
        self._note_missing(environment, {*snapshot.files, *files})
        return ProjectSetup(suite, environment.env, environment.paths, files)

    def _note_missing(self, environment: Environment, files: Collection[str]) -> None:
        """Note once each folder of `paths` that the tree lacks."""
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

    def _build_once(self, recipe: Recipe) -> BuiltEnvironment:
        key = recipe.key
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            known = self._built.get(key)
            if known is None:
                known = self._try_to_build(recipe)
                self._built[key] = known
        if isinstance(known, ConfigurationError):
            raise known
        return known

    def _try_to_build(self, recipe: Recipe) -> BuiltEnvironment | ConfigurationError:
        try:
            return build_environment(recipe, self._folder, note=self._note, cancel=self._cancel)
        except ConfigurationError as error:
            return error


def digest_environment(environment: Environment) -> str:
    """Hash all of an environment (SHA-256 in hex), to keep results of different ones apart."""
    text = json.dumps(asdict(environment), sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def find_project(repository: Path, spec: EnvironmentSpec) -> str:
    """Find the project `owner/name` of the spec that a repository's folder is named after; else "".

    The folder may be `owner__name`, `owner+name` or `owner/name`, with or without `.git`, or be
    named like the only project of the spec with that name.
    """
    path = repository.absolute()
    name = path.name.removesuffix(".git")
    for separator in ("__", "+"):
        owner, found, rest = name.partition(separator)
        if found and spec.names(f"{owner}/{rest}"):
            return f"{owner}/{rest}"
    nested = f"{path.parent.name}/{name}"
    return nested if spec.names(nested) else spec.find_by_name(name)


def _files(environment: Environment, snapshot: Snapshot, version: str) -> dict[str, bytes]:
    name = environment.metadata
    known = environment.version or read_static_version(name or "", snapshot) or version
    number = known or UNKNOWN_VERSION
    files = {
        path: text.replace("{version}", number).encode("utf-8", "surrogatepass")
        for path, text in environment.files.items()
    }
    if name:
        files.update(make_dist_info(name, number, snapshot))
    return files


def make_ancestor_check(git: GitRepository, commit: str) -> Callable[[str], bool]:
    """Return a function that says whether a commit id is `commit` or one of its ancestors.

    It takes 7 to 40 hex digits and ignores merges. The first call reads the history, so call it
    while `git` is open.
    """
    history: list[frozenset[str]] = []

    def holds(wanted: str) -> bool:
        if not history:
            history.append(frozenset((commit, *git.ancestors(commit, _MOST_COMMITS))))
        return wanted in history[0] or any(each.startswith(wanted) for each in history[0])

    return holds


def choose_suite(command: str, snapshot: Snapshot) -> Suite | None:
    """Choose how to run the tests of a spec's command; None for no command.

    pytest, unittest, Django's runners and `bin/test` are given single test files. Every other
    command runs unchanged on all of its tests. Raises ConfigurationError for an invalid command
    line and for a runner that the project lacks.
    """
    if not command:
        return None
    words = _split_command(command)
    rest = words[1:] if _PYTHON.fullmatch(PurePosixPath(words[0]).name) else words
    module, options = (rest[1], rest[2:]) if rest[:1] == ["-m"] and rest[1:] else ("", rest[1:])
    program = module or (PurePosixPath(rest[0]).name if rest else "")
    if rest and rest[0] == "bin/test":  # SymPy's own runner; pytest runs its tests too
        return Suite("pytest", _WHY)
    if program in ("pytest", "py.test"):
        return Suite("pytest", _WHY, tuple(options))
    if program == "unittest":
        return Suite("unittest", _WHY)
    for end, framework in _BY_SCRIPT:
        if rest and rest[0].endswith(end):
            return _suite_of_script(framework, rest, snapshot)
    return Suite(COMMAND, _WHY, tuple(words))


def _suite_of_script(framework: str, words: Sequence[str], snapshot: Snapshot) -> Suite:
    suite = RUNNERS[framework].detect(snapshot)
    if suite is None:
        raise ConfigurationError(f"test = {shlex.join(words)!r}: the project has no such runner")
    options = [word for word in words[1:] if word not in suite.argv]
    return replace(suite, why=_WHY, argv=(*suite.argv, *options))


def _split_command(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigurationError(f"test = {command!r}: {error}; quote it as for a shell") from None
    if not words:
        raise ConfigurationError("test: the command is empty; leave it out to choose by the files")
    return words
