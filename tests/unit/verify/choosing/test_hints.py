from __future__ import annotations

from agent.types import Chunk, ChunkKind, Problem, Ranking, ScoredChunk, ScoredFile
from agent.verify.choosing import TestHints, find_test_hints
from tests.support.fakes import MemorySnapshot
from tests.support.tokens import ApproximateCounter

FILES = {
    "pkg/parser.py": "def parse(text):\n    return text\n",
    "pkg/other.py": "X = 1\n",
    "tests/test_parser.py": "from pkg.parser import parse\n\n\ndef test_parse():\n    assert 1\n",
    "tests/test_other.py": "from pkg.other import X\n",
}


def hints(files: dict[str, str], *ranked: str) -> TestHints:
    ranking = Ranking((), tuple(ScoredFile(path, 1.0) for path in ranked), 0)
    problem = Problem("parsing fails", "")
    return find_test_hints(problem, ranking, MemorySnapshot(files), ApproximateCounter())


def test_tests_of_the_likeliest_files_come_first_and_the_first_is_begun() -> None:
    found = hints(FILES, "pkg/parser.py")
    assert found.paths[0] == "tests/test_parser.py"
    assert found.total == 2
    assert found.excerpt.startswith("from pkg.parser import parse\n")
    assert found.language == "python"
    assert found.place == "tests/test_parser.py begins"


def test_a_project_without_tests_gives_none() -> None:
    assert hints({"pkg/parser.py": "x = 1\n"}, "pkg/parser.py") == TestHints()


def test_a_long_test_file_is_cut_at_whole_lines_and_cannot_close_its_fence() -> None:
    long = "from pkg.parser import parse\n```\n" + "assert parse('x') == 'y'\n" * 500
    found = hints({**FILES, "tests/test_parser.py": long}, "pkg/parser.py")
    assert ApproximateCounter().count(found.excerpt) <= 350
    assert found.excerpt.endswith("assert parse('x') == 'y'")
    assert "```" not in found.excerpt


def test_secrets_of_a_test_file_are_masked() -> None:
    token = "ghp_" + "a1B2" * 9
    secret = f"from pkg.parser import parse\nTOKEN = '{token}'\n"
    found = hints({**FILES, "tests/test_parser.py": secret}, "pkg/parser.py")
    assert token not in found.excerpt


def test_the_excerpt_is_the_test_that_uses_the_likeliest_code() -> None:
    tests = (
        "import pkg\n\n\ndef test_first():\n    assert 1\n\n\nclass TestParser:\n"
        "    def test_parse(self):\n        text = ''\n\n        assert pkg.parse(text) == ''\n\n"
        "    def test_last(self):\n        assert 2\n"
    )
    files = {**FILES, "tests/test_parser.py": tests}
    blob = "0" * 40
    chunk = Chunk("pkg/parser.py", 1, 2, "parse", ChunkKind.FUNCTION, "", blob, "python")
    ranking = Ranking((ScoredChunk(chunk, 1.0),), (ScoredFile("pkg/parser.py", 1.0),), 1)
    snapshot, counter = MemorySnapshot(files), ApproximateCounter()
    found = find_test_hints(Problem("parsing fails", ""), ranking, snapshot, counter)
    assert found.excerpt == (
        "    def test_parse(self):\n        text = ''\n\n        assert pkg.parse(text) == ''"
    )
    assert found.place == "tests/test_parser.py:L9-12"


def test_a_test_with_text_that_the_issue_quotes_comes_before_one_that_only_uses_the_code() -> None:
    tests = (
        "from pkg import parse\n\n\ndef test_parse():\n    assert parse('') == ''\n\n\n"
        "def test_link():\n    assert parse('x') == '<a href=\"None\">x</a>'\n"
    )
    files = {**FILES, "tests/test_parser.py": tests}
    chunk = Chunk("pkg/parser.py", 1, 2, "parse", ChunkKind.FUNCTION, "", "0" * 40, "python")
    ranking = Ranking((ScoredChunk(chunk, 1.0),), (ScoredFile("pkg/parser.py", 1.0),), 1)
    for body in ('It gives:\n\n    <a href="None">x</a>\n', 'It has `<a href="None">x</a>`.'):
        problem = Problem("parsing fails", body)
        found = find_test_hints(problem, ranking, MemorySnapshot(files), ApproximateCounter())
        assert found.place == "tests/test_parser.py:L8-9, with text that the issue quotes"
