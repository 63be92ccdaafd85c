from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pydantic import BaseModel

from agent.repository.snapshot import take_snapshot
from agent.search.passages import described, name_in, read_query, without_labels
from agent.search.pool import find_exact, named_first
from agent.search.project import JsonLines, normalised_url, project_key, project_name
from agent.search.symbols import load_outline
from agent.types import ScoredChunk
from tests.conftest import run_git
from tests.support.chunks import make_chunk
from tests.support.corpora import FILES, small_index
from tests.support.fakes import MemorySnapshot

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


def test_one_process_makes_lines_at_a_time(tmp_path: Path) -> None:
    first, second = (JsonLines(tmp_path / "lines.jsonl", Line) for _ in range(2))
    with first.making() as mine:
        assert mine
        with second.making() as theirs:
            assert not theirs
    with second.making() as theirs:
        assert theirs


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Cart.total", "Cart.total"),
        ("Cart::total()", "Cart.total"),
        ("Cart#total", "Cart.total"),
        (" snake_case ", "snake_case"),
        ("NO_COLOR", "NO_COLOR"),
        ("fooBar", "fooBar"),
        ("HTTP", "HTTP"),
        ("x86", "x86"),
        ("two words", ""),
        ("f(x)", ""),
        ("a..b", ""),
        ("1st", ""),
        ("x" * 300, ""),
    ],
)
def test_identifiers_and_prose(text: str, name: str) -> None:
    query = read_query(text)
    assert (query.kind, query.name) == ("identifier" if name else "prose", name)


def test_a_word_is_a_name_only_where_it_is_defined() -> None:
    query = read_query("Total")
    assert (query.kind, query.name) == ("word", "Total")
    assert query.as_name(defined=True).formatted == "NAME: Total"
    assert query.as_name(defined=False).formatted == "DESCRIPTION: Total"


def test_labels_are_no_words() -> None:
    text = described("Cart.total", "method", "a.py", "Sums.\nNAME: is a word here")
    assert without_labels(text) == "Cart.total\nmethod\na.py\nSums.\nis a word here"
    assert name_in(text) == "Cart.total"
    assert name_in("plain") == ""


def places(text: str, files: dict[str, str] | None = None) -> list[str]:
    snapshot = MemorySnapshot(files or FILES)
    corpus = load_outline(snapshot, small_index(), threading.Event())
    return [hit.passage.place for hit in find_exact(read_query(text), corpus, snapshot)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("total", ["shop/cart.py:2-4 Cart.total"]),
        ("Cart.total", ["shop/cart.py:2-4 Cart.total"]),
        ("Cart::total()", ["shop/cart.py:2-4 Cart.total"]),
        ("shop.cart.Cart.total", ["shop/cart.py:2-4 Cart.total"]),
        ("cart.Cart", ["shop/cart.py:1-1 Cart"]),
        ("other.Cart", []),
        ("Jar.total", []),
        ("sendOrder", ["web/api.js:1-6 sendOrder"]),
        ("no_such_name", []),
        ("the total", []),
    ],
)
def test_names_are_looked_up(text: str, found: list[str]) -> None:
    assert places(text) == found


def test_the_whole_name_wins_over_its_tail() -> None:
    files = {
        "a.py": "class A:\n    def run(self):\n        pass\n",
        "b.py": "def run():\n    pass\n",
    }
    assert places("run", files) == ["b.py:1-2 run"]


def test_a_name_that_too_many_share_is_searched_for() -> None:
    text = "".join(f"class C{n}:\n    def get(self):\n        pass\n" for n in range(13))
    assert places("get", {"a.py": text}) == []


def test_the_definition_of_a_name_comes_before_code_that_uses_it() -> None:
    tree = MemorySnapshot({"a.py": "def shown(): strip(1)\n", "b.py": "def strip(): ...\n"})
    used = ScoredChunk(make_chunk(tree, "a.py", 1, 1, "shown"), 9.0)
    defined = ScoredChunk(make_chunk(tree, "b.py", 1, 1, "strip"), 1.0)
    ordered = named_first("strip", (used, defined))
    assert [hit.chunk.symbol for hit in ordered] == ["strip", "shown"]
    assert named_first("strip the tags", (used, defined)) == [used, defined]


def test_keys_are_file_names() -> None:
    key = project_key("example.org/team/../shop:x")
    assert "/" not in key
    assert key != project_key("example.org/team/../shop:y")
