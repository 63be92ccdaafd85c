from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from sandbox.private import make_private, sweep_stale

ROOT = Path(__file__).resolve().parents[3]


def agent(parent: Path) -> subprocess.Popen[bytes]:
    """Another agent that holds a private directory and waits to be killed."""
    code = (
        "import time; from pathlib import Path; from sandbox.private import make_private; "
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
    name = "patchshot-999999999-0123456789abcdef"
    (tmp_path / "patchshot-mine").mkdir()
    (tmp_path / name).symlink_to(target)
    (tmp_path / name.replace("a", "b")).write_text("a file")
    assert sweep_stale(tmp_path) == ()
    assert len(list(tmp_path.iterdir())) == 4


def test_a_young_directory_without_a_lock_yet_stays_while_its_maker_lives(tmp_path: Path) -> None:
    young = tmp_path / f"patchshot-{os.getpid()}-0123456789abcdef"
    young.mkdir()
    assert sweep_stale(tmp_path) == ()
    old = time.time() - 3600
    os.utime(young, (old, old))
    assert sweep_stale(tmp_path) == (young,)
    assert not young.exists()


def test_a_missing_parent_has_nothing_to_sweep(tmp_path: Path) -> None:
    assert sweep_stale(tmp_path / "absent") == ()
