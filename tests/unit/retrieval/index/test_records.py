from __future__ import annotations

import numpy as np
import pytest

from agent.retrieval.index import (
    BlockBuilder,
    name_hash,
)
from agent.retrieval.index.corpus import Block


def symbols(record: Block) -> list[str]:
    text = record["symbols"].tobytes().decode()
    ends = np.cumsum(record["symbol_sizes"])
    return [
        text[end - size : end]
        for end, size in zip(ends, record["symbol_sizes"].tolist(), strict=True)
    ]


def used(record: Block, piece: int) -> set[int]:
    """Hashes of the names that a piece uses."""
    ends = np.cumsum(record["use_sizes"].astype(np.int64))
    own = record["uses"][ends[piece] - int(record["use_sizes"][piece]) : ends[piece]]
    return {int(value) for value in record["names"][own]}


def uses(source: str, symbol: str, candidates: str, language: str = "python") -> set[str]:
    """Which of the candidate names the piece of that symbol uses."""
    record = BlockBuilder().build([(language, source)])
    hashes = used(record, symbols(record).index(symbol))
    return {name for name in candidates.split() if name_hash(name) in hashes}


CALLER = """\
class Client(Base):
    def fetch(self, url):
        # comment
        result = self.session.get_user(url)
        for item in helpers.load(result):
            raise HTTPError(item.status)
        if (url): return isinstance(url, MyType)
        def inner(): pass
        return self.fetch(url), 1.5
"""


def test_names_that_a_piece_uses() -> None:
    names = "get_user load HTTPError status isinstance MyType session"
    absent = "fetch url item if inner self Base result comment"
    assert uses(CALLER, "Client.fetch", f"{names} {absent}") == set(names.split())


@pytest.mark.parametrize(
    ("language", "source", "symbol"),
    [
        ("javascript", "function f(a) { return helper(a); }\n", "f"),
        ("go", "package a\n\nfunc f(a int) int { return pkg.helper(a) }\n", "f"),
        ("rust", "fn f(a: u8) -> u8 { module::helper(a) }\n", "f"),
        ("java", "class A {\n  int f(int a) { return this.helper(a); }\n}\n", "A.f"),
        ("cpp", "int f(A *a) {\n  return a->helper(1);\n}\n", "f"),
        ("ruby", "def f(a)\n  other.helper(a)\nend\n", "f"),
        ("php", "<?php\nfunction f($a) { return A::helper($a); }\n", "f"),
    ],
)
def test_names_used_in_other_languages(language: str, source: str, symbol: str) -> None:
    assert uses(source, symbol, "helper f function func return", language) == {"helper"}


def test_imports_are_kept() -> None:
    record = BlockBuilder().build([("python", "from .core import a\nimport x.y\n")])
    assert record["imports"].tobytes().decode() == "./core/a\nx/y"
