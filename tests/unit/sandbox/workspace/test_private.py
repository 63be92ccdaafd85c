from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sandbox import files as private
from sandbox.files import (
    choose_directory,
    make_private,
    store_size,
    sweep_stale,
    temporary_directories,
)
from sandbox.killing import new_name

GIB = 1024**3


@pytest.fixture(autouse=True)
def no_temporary_directory_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(private, "MEMORY", folder)
    monkeypatch.setattr(private, "_usable_memory", lambda: 4 * GIB)
    return folder


def test_only_small_repositories_are_copied_into_memory(memory: Path) -> None:
    assert choose_directory(10_000_000) == memory
    assert choose_directory(GIB) == Path(tempfile.gettempdir())


def test_the_users_choice_is_obeyed(
    memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert temporary_directories() == (tmp_path,)
    assert choose_directory(1) == tmp_path


def test_the_size_of_a_store_counts_links_as_links(tmp_path: Path) -> None:
    (tmp_path / "aa").mkdir()
    (tmp_path / "aa" / "object").write_bytes(b"x" * 1000)
    (tmp_path / "aa" / "link").symlink_to("/etc")
    assert 1000 <= store_size(tmp_path) < 1100
    assert store_size(tmp_path / "absent") == 0


ROOT = Path(__file__).resolve().parents[4]


def agent(parent: Path) -> subprocess.Popen[bytes]:
    """Start another agent that holds a private directory and waits to be killed."""
    code = (
        "import time; from pathlib import Path; "
        "from sandbox.files import make_private; "
        f"held = make_private(Path({str(parent)!r})); print(held.path, flush=True); time.sleep(60)"
    )
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE)


def test_what_a_killed_agent_left_is_swept_and_what_is_in_use_stays(tmp_path: Path) -> None:
    with agent(tmp_path) as killed, agent(tmp_path) as living:
        assert killed.stdout is not None
        assert living.stdout is not None
        left = Path(killed.stdout.readline().decode().strip())
        used = Path(living.stdout.readline().decode().strip())
        (left / "tree").mkdir()
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        own = make_private(tmp_path)
        assert sweep_stale(tmp_path) == (left,)
        assert sorted(tmp_path.iterdir()) == sorted([used, own.path])
        own.remove()
        living.kill()


def test_other_directories_links_and_files_are_not_touched(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    *owner, token = new_name().split("-")
    name = "-".join((*owner[:-1], "1", token))  # its maker has ended
    (tmp_path / "patchshot-mine").mkdir()
    (tmp_path / name).symlink_to(target)
    (tmp_path / f"{name[:-1]}{'1' if name[-1] == '0' else '0'}").write_text("a file")
    assert sweep_stale(tmp_path) == ()
    assert len(list(tmp_path.iterdir())) == 4
