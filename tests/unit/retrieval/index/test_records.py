from __future__ import annotations

import pytest

from agent.retrieval.index import name_hash
from tests.support.corpus import corpus_of


def uses(path: str, source: str, symbol: str, candidates: str) -> set[str]:
    """Which of the candidate names the piece of that symbol uses."""
    corpus = corpus_of({path: source})
    hashes = corpus.uses.of(corpus.symbols.index(symbol)).tolist()
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
    assert uses("a.py", CALLER, "Client.fetch", f"{names} {absent}") == set(names.split())


@pytest.mark.parametrize(
    ("path", "source", "symbol"),
    [
        ("a.js", "function f(a) { return helper(a); }\n", "f"),
        ("a.go", "package a\n\nfunc f(a int) int { return pkg.helper(a) }\n", "f"),
        ("a.rs", "fn f(a: u8) -> u8 { module::helper(a) }\n", "f"),
        ("a.java", "class A {\n  int f(int a) { return this.helper(a); }\n}\n", "A.f"),
        ("a.cpp", "int f(A *a) {\n  return a->helper(1);\n}\n", "f"),
        ("a.rb", "def f(a)\n  other.helper(a)\nend\n", "f"),
        ("a.php", "<?php\nfunction f($a) { return A::helper($a); }\n", "f"),
    ],
)
def test_names_used_in_other_languages(path: str, source: str, symbol: str) -> None:
    assert uses(path, source, symbol, "helper f function func return") == {"helper"}


def test_imports_are_kept() -> None:
    corpus = corpus_of({"a.py": "from .core import a\nimport x.y\n"})
    assert list(corpus.imports) == ["./core/a\nx/y"]
