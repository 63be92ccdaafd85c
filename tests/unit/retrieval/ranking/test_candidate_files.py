from __future__ import annotations

from collections.abc import Mapping

from agent.retrieval.index.index import target_files
from agent.retrieval.ranking.mentions import read_mentions
from agent.retrieval.ranking.stages import candidate_files
from agent.types import Problem
from tests.support.fakes import MemorySnapshot

FILES: Mapping[str, str] = dict.fromkeys(
    ("pkg/mod.py", "pkg/_vendor/x.py", "pkg/api_pb2.py", "tests/test_mod.py", "README.md"),
    "x = 1\n",
)


def candidates(title: str, body: str = "", files: Mapping[str, str] = FILES) -> list[str]:
    problem = Problem(title, body)
    found = candidate_files(MemorySnapshot(files), problem, read_mentions(problem))
    return [file.path for file in found]


def test_tests_vendored_and_generated_files_are_no_targets() -> None:
    assert candidates("It fails", "see tests/test_mod.py") == ["README.md", "pkg/mod.py"]
    assert [f.path for f in target_files(MemorySnapshot(FILES))] == ["README.md", "pkg/mod.py"]


def test_a_path_in_the_title_is_a_target() -> None:
    assert "tests/test_mod.py" in candidates("tests/test_mod.py is wrong")
    assert "pkg/_vendor/x.py" in candidates("Update _vendor/x.py")


def test_a_problem_about_tests_makes_the_named_ones_targets() -> None:
    found = candidates("Flaky test", "`test_mod.py` fails at times")
    assert found == ["README.md", "pkg/mod.py", "tests/test_mod.py"]
    assert "tests/test_mod.py" not in candidates("Flaky test", "somewhere")


def test_where_nothing_else_is_there_all_are() -> None:
    assert candidates("It fails", files={"tests/test_a.py": "x = 1\n"}) == ["tests/test_a.py"]
