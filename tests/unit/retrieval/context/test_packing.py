from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.retrieval.context.builder import PackingOptions
from agent.retrieval.context.layout import PREAMBLE
from agent.retrieval.context.packing import pack
from agent.shared.tokens import TiktokenCounter
from agent.types import Chunk, ChunkKind, ContextBundle, Problem, Ranking
from agent.types.protocols import TokenCounter
from tests.support.chunks import make_chunk, make_ranking
from tests.support.fakes import MemorySnapshot
from tests.support.tokens import ApproximateCounter

PROBLEM = Problem("parse fails on empty input", "Calling `parse('')` raises in the tokenizer step.")
NO_SUPPORT = PackingOptions(support_share=0)
COUNTER = ApproximateCounter()

MODULE = '''\
import os
import sys
from tools import helper, other


@decorated
@twice(1)
class Parser(Base):
    """Parses.

    A long text.
    """

    limit = 3
    a = 1
    b = 2
    c = 3
    d = 4
    e = 5
    f = 6
    g = 7
    def __init__(self, text):
        self.text = text

    def parse(self):
        return self.step(helper(os.path)) + local(1)

    def step(self, x):
        return x


def local(n):
    return n


def unrelated():
    return None
'''
TOOLS = "def helper(value, *more):\n    return value\n"
CLASS, INIT, PARSE, STEP, LOCAL, UNRELATED = (
    ("Parser", 6, 28),
    ("Parser.__init__", 22, 23),
    ("Parser.parse", 25, 26),
    ("Parser.step", 28, 29),
    ("local", 32, 33),
    ("unrelated", 36, 37),
)


def sample() -> tuple[MemorySnapshot, dict[str, Chunk]]:
    snapshot = MemorySnapshot({"pkg/parser.py": MODULE, "tools.py": TOOLS})
    chunks = {
        name: make_chunk(snapshot, "pkg/parser.py", start, end, name)
        for name, start, end in (INIT, PARSE, STEP, LOCAL, UNRELATED)
    }
    chunks["Parser"] = make_chunk(
        snapshot,
        "pkg/parser.py",
        6,
        29,
        "Parser",
        kind=ChunkKind.CLASS,
        signature_lines=3,
        holes=((22, 29),),
    )
    chunks["helper"] = make_chunk(snapshot, "tools.py", 1, 2, "helper")
    return snapshot, chunks


def do_pack(
    snapshot: MemorySnapshot,
    ranking: Ranking,
    options: PackingOptions | None = None,
    counter: TokenCounter = COUNTER,
) -> ContextBundle:
    return pack(PROBLEM, ranking, snapshot, counter, options)


def cuts(bundle: ContextBundle) -> dict[str, str]:
    return {dropped.symbol or dropped.path: dropped.cut_by for dropped in bundle.dropped}


def lines_of(first: int, last: int) -> str:
    return "\n".join(MODULE.split("\n")[first - 1 : last])


def body(bundle: ContextBundle) -> str:
    """Return the body of the only fence."""
    (found,) = re.findall(r"^```\w+\n(.*?)\n```$", bundle.text, re.DOTALL | re.MULTILINE)
    return str(found)


def shown(bundle: ContextBundle) -> list[str]:
    return [piece.symbol for piece in bundle.pieces if piece.form != "signatures"]


def test_rendered_exactly() -> None:
    snapshot, chunks = sample()
    ranking = make_ranking([chunks["helper"], chunks["local"]])
    assert do_pack(snapshot, ranking, NO_SUPPORT).text == (
        "### tools.py:L1-2 of 2\n"
        "```python\n"
        "def helper(value, *more):\n"
        "    return value\n"
        "```\n"
        "\n"
        "### pkg/parser.py:L32-33 of 37\n"
        "```python\n"
        "def local(n):\n"
        "    return n\n"
        "```\n"
    )


def test_defaults_are_the_original_systems() -> None:
    options = PackingOptions()
    assert (options.budget, options.reserve, options.slots) == (6000, 0.15, 30)
    assert options.limit == 5100


def test_the_fence_is_longer_than_any_in_the_body() -> None:
    snapshot = MemorySnapshot({"a.md": "Text\n````python\ncode\n````\n"})
    bundle = do_pack(snapshot, make_ranking([make_chunk(snapshot, "a.md", 1, 4)]), NO_SUPPORT)
    body = "Text\n````python\ncode\n````"
    assert bundle.text == f"### a.md:L1-4 of 4\n`````markdown\n{body}\n`````\n"


def test_a_path_cannot_forge_a_header() -> None:
    path = "a\n### fake.py:L1-1\n`x`.py"
    snapshot = MemorySnapshot({path: "x = 1\n"})
    text = do_pack(snapshot, make_ranking([make_chunk(snapshot, path, 1, 1)]), NO_SUPPORT).text
    assert text.startswith(
        "### a\\x0a### fake.py:L1-1\\x0a\\x60x\\x60.py:L1-1 of 1\n```python\nx = 1\n"
    )


def test_support_stays_in_the_block_of_the_code_beside_it() -> None:
    snapshot, chunks = sample()
    ranking = make_ranking([chunks["Parser.parse"], chunks["Parser"]])
    bundle = do_pack(snapshot, ranking, PackingOptions(depth=1))
    assert bundle.text == (
        f"{PREAMBLE}### pkg/parser.py:L1-26 of 37 (code: L25-26)\n"
        f"```python\n{lines_of(1, 8)}\n⋮\n{lines_of(25, 26)}\n```\n"
    )


def test_overlapping_and_identical_chunks_are_shown_once() -> None:
    snapshot = MemorySnapshot(
        {"a.py": "def f():\n    return 1\n\n\n", "b.py": "def f():\n    return 1\n"}
    )
    chunks = [
        make_chunk(snapshot, "a.py", 1, 3, "f"),
        make_chunk(snapshot, "a.py", 2, 2, "inner"),
        make_chunk(snapshot, "b.py", 1, 2, "copy"),
        make_chunk(snapshot, "a.py", 4, 4, "blank"),
    ]
    bundle = do_pack(snapshot, make_ranking(chunks), NO_SUPPORT)
    assert shown(bundle) == ["f"]
    assert cuts(bundle) == {"inner": "overlap", "copy": "duplicate", "blank": "overlap"}


def test_files_that_hold_secrets_are_cut_and_values_masked() -> None:
    key = "AKIA" + "Q3EGRIZX7M4WNPL2"
    snapshot = MemorySnapshot(
        {".env": "A=1\n", "a.py": f"import x\nKEY = '{key}'\nuse(KEY)\n", "b.py": "use = 1\n"}
    )
    chunks = [make_chunk(snapshot, ".env", 1, 1), make_chunk(snapshot, "a.py", 1, 3)]
    bundle = do_pack(snapshot, make_ranking(chunks))
    assert cuts(bundle) == {".env": "secret"}
    assert body(bundle) == "import x\nKEY = '<secret removed>'\nuse(KEY)"
    assert key not in bundle.text
    assert bundle.notes == (
        "1 secret value(s) masked in a.py",
        "1 chunk(s) of files that hold secrets left out",
    )


def long_function(marker_line: int, lines: int = 400) -> MemorySnapshot:
    body = [f"    value_{i} = compute(value_{i - 1})" for i in range(1, lines + 1)]
    body[marker_line - 2] = "    tokenizer_step = parse(empty_input)"
    return MemorySnapshot({"a.py": "def long(value_0):\n" + "\n".join(body) + "\n"})


@pytest.mark.parametrize("marker_line", [2, 150, 401])
def test_a_top_chunk_that_is_too_long_is_shown_in_part(marker_line: int) -> None:
    snapshot = long_function(marker_line)
    chunk = make_chunk(snapshot, "a.py", 1, 401, "long")
    options = PackingOptions(budget=2000, reserve=0, support_share=0)
    bundle = do_pack(snapshot, make_ranking([chunk]), options)
    (piece,) = bundle.pieces
    assert piece.form == "part"
    assert body(bundle).startswith("def long(value_0):\n")
    assert "    tokenizer_step = parse(empty_input)" in body(bundle)
    assert 300 < piece.tokens <= 500
    ranges = ", ".join(f"L{first}-{last}" for first, last in piece.shown)
    assert (f" (code: {ranges})\n" in bundle.text) == (len(piece.shown) > 1)
    assert body(bundle).endswith("\n⋮") == (piece.end < 401)
    assert bundle.dropped == ()


def test_a_part_of_one_long_statement_has_the_lines_that_the_problem_names() -> None:
    handlers = [f"    on{i}(tag) {{\n      use(tag, {i});\n    }}," for i in range(100)]
    handlers[60] = "    onend(tag) {\n      tokenizer_step(parse, empty_input);\n    },"
    body_text = "\n".join(handlers)
    text = f"function clean(html) {{\n  return run({{\n{body_text}\n  }});\n}}\n"
    snapshot = MemorySnapshot({"a.js": text})
    chunk = make_chunk(snapshot, "a.js", 1, text.count("\n"), "clean")
    options = PackingOptions(budget=2000, reserve=0, support_share=0)
    shown_text = body(do_pack(snapshot, make_ranking([chunk]), options))
    assert shown_text.startswith("function clean(html) {\n  return run({\n")
    assert "    onend(tag) {\n      tokenizer_step(parse, empty_input);\n    }," in shown_text


def outline(bundle: ContextBundle, path: str) -> list[tuple[int, int]]:
    found = (p for p in bundle.pieces if p.form == "signatures" and p.path == path)
    return [run for piece in found for run in piece.shown]


def test_a_method_brings_its_class_header_imports_and_callees() -> None:
    snapshot, chunks = sample()
    names = ("Parser.parse", "Parser", "Parser.__init__", "Parser.step", "local", "helper")
    options = PackingOptions(budget=1000, reserve=0, depth=1)
    bundle = do_pack(snapshot, make_ranking([chunks[name] for name in names]), options)
    assert shown(bundle) == ["Parser.parse"]
    # Imports, class header, constructor, the method called and `local` (short bodies are shown).
    assert outline(bundle, "pkg/parser.py") == [(1, 8), (22, 23), (28, 33)]
    assert outline(bundle, "tools.py") == [(1, 2)]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[MemorySnapshot, Ranking, PackingOptions]:
    """Draw files of classes with methods, overlapping windows, an order and a budget."""
    contents, spans = {}, []
    for number in range(draw(st.integers(1, 3))):
        path = f"pkg/m{number}.py"
        lines = ["import os", "from x import helper", ""]
        first = len(lines) + 1
        holes, methods = [], []
        lines.append(f"class C{number}:")
        for index in range(draw(st.integers(1, 4))):
            start = len(lines) + 1
            length = draw(st.sampled_from([1, 2, 5, 60]))
            lines.append(f"    def m{index}(self):")
            lines += [
                f"        {draw(st.sampled_from(['a()', 'helper(1)', '```']))} # {start + i}"
                if draw(st.integers(0, 9))
                else ""
                for i in range(length)
            ]
            methods.append((path, start, len(lines), f"C{number}.m{index}", ()))
            holes.append((start, len(lines)))
        lines += ["", f"tail = {number}"]
        spans += [*methods, (path, first, len(lines), f"C{number}", tuple(holes))]
        spans.append((path, 1, min(len(lines), 12), "", ()))
        contents[path] = "\n".join(lines) + "\n"
    snapshot = MemorySnapshot(contents)
    order = draw(st.permutations(spans))
    chunks = [
        make_chunk(snapshot, path, start, end, symbol, holes=holes,
                   kind=ChunkKind.CLASS if holes else None)
        for path, start, end, symbol, holes in order
    ]  # fmt: skip
    options = PackingOptions(
        budget=draw(st.integers(0, 1500)),
        reserve=draw(st.sampled_from([0.0, 0.15])),
        max_chunks=draw(st.integers(0, 8)),
        support_share=draw(st.sampled_from([0.0, 0.2, 0.5])),
    )
    return snapshot, make_ranking(chunks), options


@pytest.mark.parametrize("counter", [ApproximateCounter(), TiktokenCounter()], ids=["fake", "real"])
@settings(max_examples=60, deadline=None)
@given(world=worlds())
def test_packing_keeps_its_promises(
    counter: TokenCounter, world: tuple[MemorySnapshot, Ranking, PackingOptions]
) -> None:
    snapshot, ranking, options = world
    bundle = pack(PROBLEM, ranking, snapshot, counter, options)

    assert bundle.tokens == counter.count(bundle.text) <= options.limit == bundle.budget
    assert bundle == pack(PROBLEM, ranking, snapshot, counter, options)
    chunks = {(c.chunk.path, c.chunk.symbol): c.chunk for c in ranking.chunks}
    seen: set[tuple[str, int]] = set()
    chosen = []
    for piece in bundle.pieces:
        lines = snapshot.text(piece.path).split("\n")
        numbers = [n for first, last in piece.shown for n in range(first, last + 1)]
        places = {(piece.path, n) for n in numbers}
        assert not places & seen
        seen |= places
        if piece.form == "whole":
            chunk = chunks[piece.path, piece.symbol]
            assert [lines[n - 1] for n in numbers if lines[n - 1].strip()] == [
                line for line in chunk.text.split("\n") if line.strip()
            ]
        if piece.form != "signatures":
            chosen.append((piece.path, piece.symbol))
    dropped = [(d.path, d.symbol) for d in bundle.dropped]
    assert sorted(chosen + dropped) == sorted(chunks)
    methods = [place for place in chosen if chunks[place].kind is ChunkKind.METHOD]
    assert len(methods) <= options.slots
    rendered = rendered_lines(snapshot, bundle)
    assert len(rendered) == len(set(rendered))
    assert set(rendered) == {place for place in seen if snapshot_line(snapshot, *place).strip()}
    if options.support_share:
        classes = [(path, f"class C{path[-4]}:") for path, _ in methods]
        assert set(classes) <= {(path, snapshot_line(snapshot, path, n)) for path, n in rendered}


def snapshot_line(snapshot: MemorySnapshot, path: str, number: int) -> str:
    return snapshot.text(path).split("\n")[number - 1]


def rendered_lines(snapshot: MemorySnapshot, bundle: ContextBundle) -> list[tuple[str, int]]:
    """Return the lines in the fences by path and number; checks headers, order and marks."""
    found = []
    blocks = r"^### (\S+?):L(\d+)-(\d+)(?: [^\n]*)?\n(`{3,})python\n(.*?)\n\4\n"
    text = bundle.text.removeprefix(PREAMBLE)
    assert re.sub(blocks, "", text, flags=re.DOTALL | re.MULTILINE).strip("\n") == ""
    for path, start, end, _, content in re.findall(blocks, text, re.DOTALL | re.MULTILINE):
        lines = snapshot.text(path).split("\n")
        numbers: list[int] = []
        marked = False
        for line in content.split("\n"):
            if line.strip() and line != "⋮":
                number = lines.index(line) + 1  # unique, if not blank
                hidden = [n for n in range((numbers or [number])[-1] + 1, number) if lines[n - 1]]
                assert bool(hidden) == (marked and bool(numbers))
                numbers.append(number)
            marked = line == "⋮"
        assert (numbers[0], numbers[-1]) == (int(start), int(end))
        assert numbers == sorted(numbers)
        found += [(path, number) for number in numbers]
    return found
