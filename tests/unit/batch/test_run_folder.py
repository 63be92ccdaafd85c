"""`agent.batch.run_folder`: whose folder it is, what binds a run, and the files of an instance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.batch import Fingerprint, claim_run_folder
from agent.errors import ConfigurationError
from agent.settings import load


def claim(folder: Path) -> list[str]:
    """Claim a folder, and return what is in it then."""
    with claim_run_folder(folder):
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def refused(folder: Path) -> str:
    with pytest.raises(ConfigurationError) as raised:
        claim(folder)
    return str(raised.value)


def test_a_folder_is_made_and_claimed_again(tmp_path: Path) -> None:
    for _ in range(2):  # the second time as after a kill at the beginning
        assert claim(tmp_path / "some/where/run") == ["instances", "lock"]


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/1.jpg").touch()
    assert "--run" in refused(tmp_path / "photos")
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["1.jpg"]


@pytest.mark.parametrize("name", ["file", "file/run"])
def test_a_file_is_no_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("x")
    message = f"--run {tmp_path / name}: {tmp_path / 'file'} is not a folder"
    assert message in refused(tmp_path / name)


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with claim_run_folder(tmp_path / "run"):
        assert "another run uses this folder" in refused(tmp_path / "run")


def make(dataset: str = "d", model: str = "m", **flags: Any) -> Fingerprint:
    made = Fingerprint.of(load(flags), Path(__file__), model)
    return made.model_copy(update={"dataset": dataset})


def test_the_same_inputs_go_on_and_anything_else_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    assert make().check(path, force=False) == ()
    make().save(path)
    assert make().check(path, force=False) == ()
    other = make("d2", "m2", context_tokens=3000)
    with pytest.raises(ConfigurationError) as raised:
        other.check(path, force=False)
    for part in ("the data set has changed", "model m, now m2", 'context_tokens "auto", now 3000'):
        assert part in str(raised.value)
    assert len(other.check(path, force=True)) == 3


def test_keys_places_and_logs_are_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    make().save(path)
    monkeypatch.setenv("PATCHSHOT_API_KEY", "sk-secret")
    monkeypatch.setenv("PATCHSHOT_CACHE_DIR", "/elsewhere")
    assert make(cache_dir="x").check(path, force=True) == ()
    assert "secret" not in make().model_dump_json()
