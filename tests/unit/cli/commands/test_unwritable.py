"""Folders that cannot be written: an index that is not kept is refused, a store is still read."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import run_git
from tests.support.agent_process import run_agent

# Root may write everywhere; without these two rights it is held to permissions as others are.
_AS_OTHERS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")


def agent(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    prefix = _AS_OTHERS if os.geteuid() == 0 else ()
    return run_agent(*words, home=home, prefix=prefix, limit=60)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("# Retry policy\n\nRetries happen thrice, always.\n")
    run_git(docs, "init", "-q")
    run_git(docs, "add", "-A")
    run_git(docs, "commit", "-q", "-m", "base")
    return tmp_path


def test_an_index_that_cannot_be_kept_is_refused(home: Path) -> None:
    cache = home / "cache"
    cache.mkdir()
    command = ("index", "--repo", "docs", "--corpus", "docs", "--store", "sqlite:///s.db", "-q")
    cache.chmod(0o555)
    done = agent(home, *command)
    cache.chmod(0o755)

    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be written" in done.stderr.splitlines()[-1]
    assert "PATCHSHOT_CACHE_DIR" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_store_that_cannot_be_written_is_read(home: Path) -> None:
    folder = home / "shared"
    store = f"sqlite://{folder}/s.db"
    asked = ("--repo", "docs", "--corpus", "docs", "--store", store)
    filled = agent(home, "index", *asked)
    (folder / "s.db").chmod(0o444)
    folder.chmod(0o555)
    listed = agent(home, "index", "--list", "--store", store)
    found = agent(home, "search", "retry policy", *asked)
    fresh = agent(home, "index", "--fresh", *asked)
    folder.chmod(0o755)

    assert filled.returncode == 0
    assert (listed.returncode, "1 collection in" in listed.stdout) == (0, True)
    assert (found.returncode, "a.md:1-3" in found.stdout) == (0, True)
    assert fresh.returncode == 2
    assert "check its folder, its permissions and the space on its disk" in fresh.stderr
