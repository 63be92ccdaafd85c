"""Shared fixtures. The repository root goes on `sys.path`: `tests.support` is imported from it."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

pytest_plugins = ["tests.support.fixtures"]

# Property tests draw the same examples at every run; `make fuzz` draws new ones.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("fuzz", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

_AMBIENT = (
    "PATCHSHOT_",
    "OPENAI_",
    "OPENROUTER_",
    "ANTHROPIC_",
    "RIDGES_",
    "AI_",
    "SANDBOX_PROXY_URL",
    "OLLAMA_HOST",
    "EVALUATION_RUN_ID",
    "RUN_ID",
    "REQUESTS_CA_BUNDLE",
)
_KEPT = (
    "PATCHSHOT_REQUIRE_BWRAP",
    "PATCHSHOT_REQUIRE_PODMAN",
    "PATCHSHOT_REQUIRE_RAY",
    "PATCHSHOT_REQUIRE_REAL",
    "PATCHSHOT_REQUIRE_STORES",
)


_SLOW_BACKENDS = frozenset({"container", "bwrap-user", "landlock-user"})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real containers are slow, and so are the variants of the other backends."""
    for item in items:
        values = getattr(getattr(item, "callspec", None), "params", {}).values()
        named = any(isinstance(value, str) and value in _SLOW_BACKENDS for value in values)
        if named or "container" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


_CONFIG: list[pytest.Config] = []


def pytest_configure(config: pytest.Config) -> None:
    """Remember the configuration for `pytest_runtest_logreport`, which is not given it."""
    _CONFIG[:] = [config]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name a failed test at once: the summary comes minutes later."""
    terminal = _CONFIG[0].pluginmanager.get_plugin("terminalreporter")
    if report.failed and terminal is not None and terminal.verbosity <= 0:
        terminal.write_line(f"\nFAILED {report.nodeid}", red=True)


@pytest.fixture(scope="session")
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A path for each test; `tmp_path` would look through the folders of all earlier tests."""
    root = tmp_path_factory.mktemp("own")
    return (root / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def no_ambient_settings(monkeypatch: pytest.MonkeyPatch, own_folders: Iterator[Path]) -> None:
    """No test sees the developer's keys, proxies, caches or git configuration."""
    for name in list(os.environ):
        if name.startswith(_AMBIENT) and name not in _KEPT:
            monkeypatch.delenv(name)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    own = next(own_folders)
    monkeypatch.setenv("PATCHSHOT_CACHE_DIR", str(own / "patchshot-cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(own / "state"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


def run_git(repository: Path, *arguments: str) -> str:
    """Run git in a test's own repository, with a fixed identity and date."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(repository),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Tester",
        "GIT_AUTHOR_EMAIL": "tester@example.invalid",
        "GIT_COMMITTER_NAME": "Tester",
        "GIT_COMMITTER_EMAIL": "tester@example.invalid",
        "GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z",
        "GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z",
    }
    done = subprocess.run(
        ["git", "-c", "init.defaultBranch=main", *arguments],
        cwd=repository,
        env=environment,
        check=True,
        capture_output=True,
        timeout=60,
    )
    return done.stdout.decode("utf-8", "replace")


@pytest.fixture
def make_repository(tmp_path: Path) -> Callable[[Mapping[str, str | bytes]], Path]:
    """Give a function that makes a committed git repository of `path -> content`."""

    def make(files: Mapping[str, str | bytes], name: str = "target") -> Path:
        root = tmp_path / name
        root.mkdir()
        for path, content in files.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode() if isinstance(content, str) else content)
        run_git(root, "init", "-q")
        run_git(root, "add", "-A", "-f")
        run_git(root, "commit", "-q", "--allow-empty", "-m", "base")
        return root

    return make
