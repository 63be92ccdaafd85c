from __future__ import annotations

from collections.abc import Mapping

import pytest

from agent.retrieval.index import Corpus
from agent.retrieval.ranking.evidence import (
    FRAME_DECAY,
    FRAME_WEIGHT,
    LINE_WEIGHT,
    MAX_AMBIGUITY,
    PLACE_FACTORS,
    SYMBOL_WEIGHT,
    Evidence,
    PathTable,
    mention_evidence,
)
from agent.retrieval.ranking.mentions import MentionPlace, read_mentions
from agent.types import Problem, Reason
from tests.support.corpus import corpus_of

CLIENT = """\
class Client:
    def get(self, url):
        return self.send(url)

    def send(self, url):
        return url


def helper():
    pass
"""
FILES = {
    "src/pkg/__init__.py": "from pkg.client import Client\n",
    "src/pkg/client.py": CLIENT,
    "src/pkg/server.py": "class Server:\n    def send(self):\n        pass\n",
    "src/other/client.py": "def connect():\n    pass\n",
}


def find(
    title: str, body: str = "", files: Mapping[str, str] | None = None
) -> tuple[Corpus, Evidence]:
    corpus, problem = corpus_of(files or FILES), Problem(title, body)
    return corpus, mention_evidence(read_mentions(problem), corpus)


def of_files(title: str, body: str = "") -> dict[str, dict[str, float]]:
    corpus, evidence = find(title, body)
    return {
        corpus.files[number].path: {name: reason.value for name, reason in reasons.items()}
        for number, reasons in evidence.files.items()
    }


def of_pieces(title: str, body: str = "") -> dict[str, dict[str, float]]:
    corpus, evidence = find(title, body)
    return {
        f"{corpus.path_of(number)}:{corpus.pieces[number].symbol}": {
            name: reason.value for name, reason in reasons.items()
        }
        for number, reasons in evidence.pieces.items()
    }


@pytest.mark.parametrize(
    ("mention", "found"),
    [
        ("src/pkg/client.py", ["src/pkg/client.py"]),
        ("usr/lib/site-packages/pkg/client.py", ["src/pkg/client.py"]),
        ("pkg/client.py", ["src/pkg/client.py"]),
        ("PKG/Client.py", ["src/pkg/client.py"]),
        ("client.py", ["src/other/client.py", "src/pkg/client.py"]),
        ("elsewhere/client.py", []),
        ("lient.py", []),
        ("", []),
    ],
)
def test_paths_are_found_by_their_longest_tail(mention: str, found: list[str]) -> None:
    paths = sorted(FILES)
    assert [paths[number] for number in PathTable(paths).find(mention)] == found


def test_a_traceback_names_files_and_functions_last_frame_first() -> None:
    body = (
        'File "/venv/site-packages/pkg/client.py", line 999, in get\n'
        'File "/venv/site-packages/pkg/server.py", line 2, in send\n'
        'File "/usr/lib/python3/socket.py", line 1, in connect\n'
    )
    corpus, evidence = find("It fails", body)
    server = [f.path for f in corpus.files].index("src/pkg/server.py")
    assert evidence.files[server]["traceback"] == Reason(
        "traceback", FRAME_WEIGHT, "traceback frame 1: src/pkg/server.py:2 in send"
    )
    pieces = of_pieces("It fails", body)
    assert pieces["src/pkg/server.py:Server.send"]["traceback"] == LINE_WEIGHT
    # The line is stale, the name is not.
    assert pieces["src/pkg/client.py:Client.get"]["traceback"] == LINE_WEIGHT * FRAME_DECAY


def test_dotted_names_find_module_and_symbol() -> None:
    pieces = of_pieces("`pkg.client.Client.get` is wrong")
    assert pieces == {
        "src/pkg/client.py:Client.get": {
            "symbol": SYMBOL_WEIGHT * PLACE_FACTORS[MentionPlace.TITLE]
        }
    }
    assert "module" in of_files("pkg.client.Client.get is wrong")["src/pkg/client.py"]


def test_a_name_exported_elsewhere_is_found_by_its_tail() -> None:
    assert "src/pkg/client.py:Client.send" in of_pieces("pkg.Client.send is wrong")
    assert "src/pkg/server.py:Server.send" not in of_pieces("pkg.Client.send is wrong")


def test_a_symbol_counts_less_the_more_share_its_name_and_the_less_deliberate_it_stands() -> None:
    unique = of_pieces("x", "`helper` fails")["src/pkg/client.py:helper"]["symbol"]
    in_code = of_pieces("x", "```\nhelper()\n```")["src/pkg/client.py:helper"]["symbol"]
    shared = of_pieces("x", "`send` fails")["src/pkg/server.py:Server.send"]["symbol"]
    assert unique > shared
    assert unique > in_code


def test_a_name_that_everything_has_says_nothing() -> None:
    files = {f"m{n}.py": "def run():\n    pass\n" for n in range(MAX_AMBIGUITY + 1)}
    _, evidence = find("`run` fails", files=files)
    assert not evidence.pieces
    assert not evidence.files
