from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.search.documents import MAX_SECTION, DocumentSource, Section, cut_sections, is_document
from agent.search.passages import Label, Passage
from agent.search.symbols import (
    content_of,
    docstring_of,
    read_symbols,
    template_intents,
)
from agent.shared.workers import Cancelled
from agent.types import Chunk, ChunkKind
from tests.support.corpora import FILES, small_index
from tests.support.fakes import MemorySnapshot


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("README", True),
        ("README.md", True),
        ("sub/readme.rst", True),
        ("docs/a/b.txt", True),
        ("USAGE.adoc", False),
        ("notes.txt", False),
        ("CHANGELOG.md", False),
        ("docs/changelog.rst", False),
        ("docs/requirements.txt", False),
        ("LICENSE", False),
        ("tests/docs/a.md", False),
        ("vendor/docs/a.md", False),
    ],
)
def test_which_files_are_documents(path: str, document: bool) -> None:
    assert is_document(path) is document


def test_sections_and_docstrings_with_their_places() -> None:
    found = DocumentSource(small_index()).passages(MemorySnapshot(FILES), threading.Event())
    assert {passage.corpus for passage in found} == {Label.DOCS}
    own = "CookieJar.expire"
    assert [(p.path, p.start, p.symbol, p.title) for p in found] == [
        ("README.md", 1, "", "Shop"),
        ("README.md", 5, "", "Shop > Expired cookies"),
        ("docs/guide.rst", 1, "", "Guide"),
        ("docs/guide.rst", 6, "", "Guide > Totals"),
        ("shop/cookies.py", 4, "CookieJar", "CookieJar: Keeps the cookies of a session"),
        ("shop/cookies.py", 7, own, f"{own}: Drop cookies that are out of date"),
        ("web/api.js", 1, "sendOrder", "sendOrder: Sends an order to the warehouse"),
    ]  # fmt: skip
    assert found[1] == Passage(
        Label.DOCS,
        "Shop > Expired cookies",
        "NAME: Shop > Expired cookies\nTYPE: document\nFILE: README.md\n"
        "DESCRIPTION: Cookies whose time is over are dropped by `CookieJar.expire`.",
        "README.md",
        5,
        7,
        language="markdown",
        tags=("section",),
    )


def test_secrets_are_masked() -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    files = {
        "README.md": f"# Keys\n\nUse the token {key} for everything.\n",
        "a.py": f'def f():\n    """Sends token {key} along."""\n',
    }
    found = DocumentSource(small_index()).passages(MemorySnapshot(files), threading.Event())
    assert len(found) == 2
    assert not any(key in passage.text or key in passage.title for passage in found)


def test_it_can_be_cancelled() -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Cancelled):
        DocumentSource(small_index()).passages(MemorySnapshot(FILES), stop)


BODY = "Words of a body that is long enough."


def test_markdown_is_cut_at_headings_and_not_inside_fences() -> None:
    text = (
        f"{BODY}\n\n# A\n\n{BODY}\n\n```\n# no heading\n```\n\n## B ##\n{BODY}\n\nC\n===\n\n{BODY}"
    )
    fenced = f"{BODY}\n\n```\n# no heading\n```"
    assert cut_sections(text, "markdown") == (
        Section((), 1, 1, BODY),
        Section(("A",), 3, 9, fenced),
        Section(("A", "B"), 11, 12, BODY),
        Section(("C",), 14, 17, BODY),
    )


def test_restructured_text_has_levels_in_the_order_of_its_adornments() -> None:
    parts = ("=====\nTitle\n=====", "Part\n----", "Sub\n~~~", "Next\n----")
    text = "\n\n".join(f"{part}\n\n{BODY}" for part in parts)
    assert [section.headings for section in cut_sections(text, "rst")] == [
        ("Title",),
        ("Title", "Part"),
        ("Title", "Part", "Sub"),
        ("Title", "Next"),
    ]


def test_a_long_section_is_cut_at_blank_lines() -> None:
    paragraph = "word " * 100
    sections = cut_sections("# Long\n\n" + f"{paragraph}\n\n" * 20, "markdown")
    assert len(sections) == 4
    assert all(len(section.text) <= MAX_SECTION for section in sections)
    assert {section.headings for section in sections} == {("Long",)}
    assert sum(section.text.count("word") for section in sections) == 2_000


@given(
    st.text(alphabet=st.sampled_from("#=-~`ab \n\t|>\0é"), max_size=300),
    st.sampled_from(["markdown", "rst", "text"]),
)
def test_any_text_is_cut_into_its_own_lines(text: str, language: str) -> None:
    lines = text.split("\n")
    last = 0
    for section in cut_sections(text, language):
        assert last < section.start <= section.end <= len(lines)
        assert section.text in text
        last = section.start


@pytest.mark.timeout(10)
def test_a_hostile_document_costs_little() -> None:
    assert len(cut_sections("=" * 1_000_000 + "\n" + "a\n" * 200_000, "rst")) > 10


def test_symbols_of_every_language_of_the_index() -> None:
    files = {
        **FILES,
        "m.go": "package m\n\n// Run starts it.\nfunc (s *Server) Run() error {\n\treturn nil\n}\n",
        "m.rs": "/// Parses a line.\nfn parse(line: &str) -> u32 {\n    1\n}\n",
        "M.java": "class M {\n  /** Closes. */\n  void close() {\n  }\n}\n",
        "m.rb": "class M\n  # Opens.\n  def open(a)\n  end\nend\n",
        "m.c": "/* Frees. */\nint free_all(int a)\n{\n  return a;\n}\n",
    }  # fmt: skip
    found = {f"{s.path}:{s.symbol}": s for s in read_symbols(MemorySnapshot(files), small_index())}
    said = {name: docstring_of(symbol) for name, symbol in found.items()}
    assert said["m.go:Server.Run"] == "Run starts it."
    assert said["m.rs:parse"] == "Parses a line."
    assert said["M.java:M.close"] == "Closes."
    assert said["m.rb:M.open"] == "Opens."
    assert said["m.c:free_all"] == "Frees."
    assert said["web/api.js:sendOrder"] == "Sends an order to the warehouse."
    expire = found["shop/cookies.py:CookieJar.expire"]
    assert expire.kind is ChunkKind.METHOD
    assert (expire.start, expire.end, expire.language) == (7, 12, "python")
    assert expire.signature.strip() == "def expire(self, now: float) -> int:"
    assert not any(symbol.path.startswith("tests/") for symbol in found.values())


def test_the_content_stays_when_a_symbol_moves() -> None:
    body = 'def f():\n    """Adds."""\n'
    (before,) = read_symbols(MemorySnapshot({"a.py": body}), small_index())
    (moved,) = read_symbols(MemorySnapshot({"b.py": "\n\n\nx = 1\n\n\n" + body}), small_index())
    (other,) = read_symbols(MemorySnapshot({"a.py": body.replace("Adds", "Sums")}), small_index())
    assert before.start != moved.start
    assert content_of(before) == content_of(moved) != content_of(other)


def test_files_of_secrets_are_left_out() -> None:
    assert read_symbols(MemorySnapshot({".env": "def f():\n    pass\n"}), small_index()) == ()


@pytest.mark.parametrize(
    ("code", "signature", "language", "said"),
    [
        ('def f():\n    """Adds.\n\n    More.\n    """\n', "def f():", "python", "Adds.\n\nMore."),
        ("def f(): 'short'\n", "def f():", "python", "short"),
        ("def f():\n    # a note\n    r'''Raw.'''\n", "def f():", "python", "Raw."),
        ('def f():\n    x = """not one"""\n', "def f():", "python", ""),
        ('def f():\n    "broken\n', "def f():", "python", ""),
        ("// Add sums.\n// Twice.\nfunc Add() {}", "func Add()", "go", "Add sums.\nTwice."),
        ("/**\n * Adds <b>two</b>.\n */\nint add() {}", "int add()", "java", "Adds two."),
        ("/// <summary>Adds.</summary>\nint Add() {}", "int Add()", "csharp", "Adds."),
        ("def g(): pass", "def f():", "python", ""),
    ],
)
def test_docstrings_of_languages(code: str, signature: str, language: str, said: str) -> None:
    assert docstring_of(symbol(signature, code, language=language)) == said


SIGNATURE = "    def expire_old(self, now: float, *, hard: bool = False) -> list[str]:"
DOCSTRING = '"""Drop cookies that are out of date.\n\nRaises ValueError for the past."""'


def symbol(
    signature: str = "",
    text: str = "",
    name: str = "CookieJar.expire_old",
    kind: ChunkKind = ChunkKind.METHOD,
    language: str = "python",
) -> Chunk:
    return Chunk("shop/cookies.py", 3, 9, name, kind, text, "", language, signature)


def test_five_sentences_in_the_first_person() -> None:
    assert template_intents(symbol(SIGNATURE, f"{SIGNATURE}\n{DOCSTRING}")) == (
        "I want to: Drop cookies that are out of date",
        "I want to expire old of cookie jar",
        "I have now, hard and want to expire old",
        "I need the list[str] that expire old gives",
        "I get ValueError when I expire old",
    )


def test_what_is_not_known_is_left_out() -> None:
    bare = symbol("def expire_old(self):", name="expire_old")
    assert template_intents(bare) == ("I want to expire old of cookies",)


@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [
        ("Cart.__len__", ChunkKind.METHOD, "I want to count a cart"),
        ("HTTPServer", ChunkKind.CLASS, "I want to use a http server of cookies"),
        ("Console.out", ChunkKind.METHOD, "I want to use out of console"),
        ("Emoji", ChunkKind.CLASS, "I want to use an emoji of cookies"),
        ("größe", ChunkKind.FUNCTION, "I want to use größe of cookies"),
    ],
)
def test_names_of_all_sorts(name: str, kind: ChunkKind, sentence: str) -> None:
    made = template_intents(symbol(name=name, kind=kind))
    assert made == (sentence,)


def test_code_in_a_line_is_no_fence() -> None:
    text = f"# A\n\n```brew install```\n\n{BODY}\n\n# B\n\n~~~\n```\n# no\n~~~\n{BODY}"
    assert [s.headings for s in cut_sections(text, "markdown")] == [("A",), ("B",)]


def test_a_heading_alone_is_no_section() -> None:
    assert cut_sections("# A\n\n## B\n", "markdown") == ()


def test_parameters_of_other_languages() -> None:
    go = symbol("func (s *Server) Run(port int, hostName string) error")
    java = symbol("void send(final Order order, String address)")
    assert any("I have order, address and" in intent for intent in template_intents(java))
    assert template_intents(go)
