from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from sandbox.files import make_private, remove_tree, sweep_stale
from sandbox.killing import new_name

ROOT = Path(__file__).resolve().parents[4]


def agent(parent: Path) -> subprocess.Popen[bytes]:
    """Start another agent that holds a private directory and waits to be killed."""
    code = (
        "import time; from pathlib import Path; "
        "from sandbox.files import make_private; "
        f"held = make_private(Path({str(parent)!r})); print(held, flush=True); time.sleep(60)"
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
        assert sorted(tmp_path.iterdir()) == sorted([used, own])
        remove_tree(own)
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
