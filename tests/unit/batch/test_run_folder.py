"""`agent.batch.run_folder`: whose folder it is, and nothing left of a run that never began."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.batch import claim_run_folder
from agent.errors import ConfigurationError
from agent.shared.files import locked


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def refused(folder: Path) -> str:
    with pytest.raises(ConfigurationError) as raised, claim_run_folder(folder):
        pass
    return str(raised.value)


def fail(folder: Path, **files: str) -> None:
    """A block that leaves files and raises."""

    def write() -> None:
        with claim_run_folder(folder):
            for name, text in files.items():
                (folder / name.replace("_", ".")).write_text(text)
            raise ConfigurationError("no")

    with pytest.raises(ConfigurationError, match="no"):
        write()


@pytest.mark.parametrize("name", ["run", "some/where/run"])
def test_a_refused_command_leaves_nothing(tmp_path: Path, name: str) -> None:
    fail(tmp_path / name, tasks_jsonl="x", journal_jsonl="", run_json="{}")
    assert everything(tmp_path) == []


def test_what_was_there_before_stays(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    fail(tmp_path / "empty", tasks_jsonl="x")
    assert everything(tmp_path) == ["empty"]
    (tmp_path / "empty/run.json").write_text("mine")
    fail(tmp_path / "empty", tasks_jsonl="x")
    assert everything(tmp_path) == ["empty", "empty/run.json"]


def test_a_run_that_has_begun_stays(tmp_path: Path) -> None:
    fail(tmp_path / "run", journal_jsonl="{}\n", tasks_jsonl="x")
    found = ["run/instances", "run/journal.jsonl", "run/lock", "run/tasks.jsonl"]
    assert everything(tmp_path) == ["run", *found]
    with claim_run_folder(tmp_path / "run"):
        pass


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/1.jpg").touch()
    assert "--run" in refused(tmp_path / "photos")
    assert everything(tmp_path) == ["photos", "photos/1.jpg"]


def test_what_a_kill_at_the_beginning_has_left_is_taken_up(tmp_path: Path) -> None:
    (tmp_path / "run/instances").mkdir(parents=True)
    (tmp_path / "run/lock").touch()
    with claim_run_folder(tmp_path / "run"):
        pass


@pytest.mark.parametrize("name", ["file", "file/run"])
def test_a_file_is_no_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("x")
    assert f"--run {tmp_path / name}: {tmp_path / 'file'} is not a folder" in refused(
        tmp_path / name
    )
    assert (tmp_path / "file").read_text() == "x"


def test_a_run_that_works_there_keeps_its_files(tmp_path: Path) -> None:
    with claim_run_folder(tmp_path / "run"):
        assert "another run uses this folder" in refused(tmp_path / "run")
        assert everything(tmp_path / "run") == ["instances", "lock"]


def test_a_lock_that_its_holder_removes_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path):
        path.unlink()
        with locked(path):  # another file, which is the one that counts
            assert path.exists()
