from __future__ import annotations

from agent.retrieval.ranking.graph import MAX_DEFINERS, neighbours
from tests.support.corpus import corpus_of

FILES = {
    "pkg/base.py": "class Base:\n    def send(self):\n        pass\n",
    "pkg/client.py": (
        "from pkg.base import Base\nfrom .tools import encode\n\n\n"
        "class Client(Base):\n"
        "    def send(self):\n        return encode(self.body)\n\n"
        "    def close(self):\n        pass\n"
    ),
    "pkg/tools.py": "def encode(text):\n    return text\n",
    "pkg/app.py": "import pkg.client\n\n\ndef run(client):\n    return client.send()\n",
    "pkg/late.py": "class Late(Client):\n    def send(self):\n        pass\n",
}


def around(symbol: str, path: str, score: float = 1.0) -> dict[str, dict[str, float]]:
    """Related pieces by name, their features and values."""
    corpus = corpus_of(FILES)
    seed = next(
        n for n, s in enumerate(corpus.symbols) if s == symbol and corpus.path_of(n) == path
    )
    found = neighbours(corpus, {seed: score}, {}).pieces
    return {
        corpus.symbols[number]: {feature: reason.value for feature, reason in reasons.items()}
        for number, reasons in found.items()
    }


def test_neighbours_of_a_method() -> None:
    assert around("Client.send", "pkg/client.py", 0.5) == {
        "encode": {"calls": 0.5},
        "run": {"called-by": 0.5 / 3},  # three classes have a `send`
        "Base.send": {"same-name": 0.25},
        "Late.send": {"same-name": 0.25},
    }


def test_neighbours_of_a_function() -> None:
    assert around("encode", "pkg/tools.py") == {"Client.send": {"called-by": 1.0}}


def test_files_that_import_each_other() -> None:
    corpus = corpus_of(FILES)
    paths = [file.path for file in corpus.files]
    found = neighbours(corpus, {}, {paths.index("pkg/client.py"): 0.8}).files
    named = {paths[n]: {f: r.value for f, r in reasons.items()} for n, reasons in found.items()}
    assert named == {
        "pkg/base.py": {"imports": 0.8},
        "pkg/tools.py": {"imports": 0.8},
        "pkg/app.py": {"imported-by": 0.8},
    }


def test_a_name_that_everyone_has_says_nothing() -> None:
    files = {f"m{n}.py": "def get():\n    pass\n" for n in range(MAX_DEFINERS + 1)}
    corpus = corpus_of({**files, "use.py": "def use():\n    return get()\n"})
    assert neighbours(corpus, {corpus.symbols.index("use"): 1.0}, {}).pieces == {}
    assert neighbours(corpus, {0: 1.0}, {}).pieces == {}


def test_a_definition_of_the_same_file_is_meant_first() -> None:
    corpus = corpus_of(
        {"a.py": "def load():\n    pass\n\ndef use():\n    return load()\n",
         "b.py": "def load():\n    pass\n"}
    )  # fmt: skip
    found = neighbours(corpus, {corpus.symbols.index("use"): 1.0}, {}).pieces
    assert {n: reasons["calls"].value for n, reasons in found.items()} == {0: 1.0, 2: 0.5}
