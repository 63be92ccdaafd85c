from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pydantic import BaseModel

from agent.repository.snapshot import take_snapshot
from agent.search.project import JsonLines, normalised_url, project_key, project_name
from tests.conftest import ROOT, run_git
from tests.support.full_disk import full_at

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/team/shop.git",
        "https://user:key@Example.org/team/shop",
        "ssh://git@example.org:22/team/shop.git",
        "git@example.org:team/shop.git",
        "example.org:team/shop/",
    ],
)
def test_one_name_for_all_ways_to_a_project(url: str) -> None:
    assert normalised_url(url) == "example.org/team/shop"


def test_the_remote_names_the_project_on_every_machine(make_repository: MakeRepository) -> None:
    root = make_repository({"a.py": "x = 1\n"})
    own = project_name(take_snapshot(root))
    assert own.startswith("local/target-")
    run_git(root, "remote", "add", "origin", "git@example.org:team/shop.git")
    assert project_name(take_snapshot(root)) == "example.org/team/shop"
    run_git(root, "worktree", "add", "-q", str(root.parent / "linked"))
    assert project_name(take_snapshot(root.parent / "linked")) == "example.org/team/shop"


def test_keys_are_file_names() -> None:
    key = project_key("example.org/team/../shop:x")
    assert "/" not in key
    assert key != project_key("example.org/team/../shop:y")


class Line(BaseModel):
    number: int


def lines_of(path: Path) -> list[int]:
    return [line.number for line in JsonLines(path, Line).news()]


def test_lines_are_given_once_and_those_of_others_too(tmp_path: Path) -> None:
    mine = JsonLines(tmp_path / "a" / "lines.jsonl", Line)
    assert list(mine.news()) == []
    mine.append(Line(number=1))
    assert [line.number for line in mine.news()] == [1]
    JsonLines(mine.path, Line).append(Line(number=2))
    assert [line.number for line in mine.news()] == [2]
    assert list(mine.news()) == []


def test_a_torn_last_line_is_passed_over_and_stays_alone(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    JsonLines(path, Line).append(Line(number=1))
    with path.open("ab") as file:
        file.write(b'{"numb')
    assert lines_of(path) == [1]
    JsonLines(path, Line).append(Line(number=2))
    assert lines_of(path) == [1, 2]


def test_damaged_and_foreign_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'\xff\xfe\n\n{"other": 1}\n{"number": 3}\n[]\n{"number": 4}\n')
    assert lines_of(path) == [3, 4]


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    kept = JsonLines(path, Line)
    kept.append(Line(number=1))
    with full_at(path.stat().st_size + 5), pytest.raises(OSError):
        kept.append(Line(number=2))
    assert path.read_bytes() == b'{"number":1}\n'


def test_one_process_makes_lines_at_a_time(tmp_path: Path) -> None:
    first, second = (JsonLines(tmp_path / "lines.jsonl", Line) for _ in range(2))
    with first.making() as mine:
        assert mine
        with second.making() as theirs:
            assert not theirs
    with second.making() as theirs:
        assert theirs


def test_many_processes_append_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    code = (
        "import sys; from pathlib import Path; from pydantic import BaseModel\n"
        "from agent.search.project import JsonLines\n"
        "class Line(BaseModel):\n    number: int\n"
        "kept = JsonLines(Path(sys.argv[1]), Line)\n"
        "for n in range(50): kept.append(Line(number=int(sys.argv[2]) * 100 + n))\n"
    )
    runs = [
        subprocess.Popen([sys.executable, "-c", code, str(path), str(n)], cwd=ROOT)
        for n in range(3)
    ]
    assert [run.wait(60) for run in runs] == [0, 0, 0]
    assert sorted(lines_of(path)) == [n * 100 + m for n in range(3) for m in range(50)]
