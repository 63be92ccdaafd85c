from __future__ import annotations

import pytest

from agent.retrieval.context.builder import PackingOptions
from agent.retrieval.context.packing import pack
from agent.retrieval.context.support import import_statements
from agent.retrieval.index.chunking import TreeSitterChunker
from agent.types import ContextBundle, Problem
from tests.support.chunks import make_ranking
from tests.support.fakes import MemorySnapshot
from tests.support.tokens import ApproximateCounter


def found(language: str, source: str) -> list[tuple[int, int]]:
    return [(s.start, s.end) for s in import_statements(source.split("\n"), language)]


PYTHON = '''\
"""Doc.

from time to time this is prose
import this because it is so
"""
from __future__ import annotations
import os, sys
from a.b import (
    c,
    d as e,
)
import x.y as z  # why
from . import q \\
    , r
if TYPE_CHECKING:
    import inner
def f():
    import local
importlib.reload(x)
'''


@pytest.mark.parametrize(
    ("language", "source", "expected"),
    [
        ("python", PYTHON, [(6, 6), (7, 7), (8, 11), (12, 12), (13, 14)]),
        (
            "javascript",
            "import {\n  a,\n} from 'b';\nconst c = require('c');\nimport('d');\nlet e = 1;",
            [(1, 3), (4, 4)],
        ),
        (
            "typescript",
            "import type { A } from './a';\nexport * from './b';\nexport const c = 1;",
            [(1, 1), (2, 2)],
        ),
        ("go", 'import (\n\t"fmt"\n)\nimport "os"\nimportant := 1', [(1, 3), (4, 4)]),
        ("rust", "use std::{\n    fmt,\n};\npub use crate::a;\nuseful();", [(1, 3), (4, 4)]),
        ("java", "import java.util.*;\nimport static a.B.c;\nclass A {}", [(1, 1), (2, 2)]),
        ("c", '#include <a.h>\n#  include "b.h"\n#define X 1', [(1, 1), (2, 2)]),
        ("php", "<?php\nuse A\\B;\nrequire_once 'x.php';", [(2, 2), (3, 3)]),
        ("ruby", "require 'a'\nrequire_relative 'b'\nrequired = 1", [(1, 1), (2, 2)]),
        ("csharp", "using System;\nusing var f = Open();\nusing A = B.C;", [(1, 1), (3, 3)]),
        ("brainfuck", "import a", []),
    ],
)
def test_import_statements(language: str, source: str, expected: list[tuple[int, int]]) -> None:
    assert found(language, source) == expected


FILLER = "".join(f"def filler_{n}():\n    return {n}\n\n\n" for n in range(40))
METHODS = "".join(f"    def method_{n}(self):\n        return {n}\n\n" for n in range(9))
ENTRIES = "".join(f'    "key{n}": "value{n}",\n' for n in range(30))
FILE = f'''\
"""Prices."""

import os

LIMIT = 3
UNUSED = 4
TABLE = {{
{ENTRIES}}}


{FILLER}class Base:
    def total(self):
        return self.rate


class Basket(Base):
    """A basket."""

    rate = 7
    other = 8
    currency: str
    country: str

{METHODS}    def total(self):
        return super().total() + LIMIT * self.rate + TABLE["key3"] + self.currency
'''


def packed(symbol: str, **options: float) -> ContextBundle:
    snapshot = MemorySnapshot({"a.py": FILE})
    chunker = TreeSitterChunker()
    chunks = chunker(snapshot.files["a.py"], FILE)
    (chosen,) = [chunk for chunk in chunks if chunk.symbol == symbol]
    return pack(
        Problem("wrong", ""),
        make_ranking([chosen]),
        snapshot,
        ApproximateCounter(),
        PackingOptions(budget=600, **options),
        chunker=chunker,
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("LIMIT = 3", True),
        ("    rate = 7", True),
        ("    currency: str", True),
        ("    country: str", False),
        ('    "key0": "value0",', True),  # a long table is begun
        ('    "key20": "value20",', False),
        ("        return self.rate", True),  # the method that is overridden
    ],
)
def test_what_the_code_uses_is_shown(line: str, expected: bool) -> None:
    text = packed("Basket.total", support_share=0.5).text
    assert (f"\n{line}\n" in text) is expected


LONG_BODY = "".join(f"        step_{n}()\n" for n in range(30))
PROJECT = {
    "sql/dialects.py": f"""\
from sql.text import _ansi_re, helper

__all__ = [
    "Ansi",
]


class Generator:
    def render(self):
        self.begin()
{LONG_BODY}        return 1


class Ansi(Generator):
    TRANSFORMS = {{
{"".join(f"        exp.T{n}: {n}," + chr(10) for n in range(30))}    }}

    def render(self):
        return _ansi_re.sub("", "x")


class Other(Generator):
    def render(self):
        return 2
""",
    "sql/text.py": "import re\n\n_ansi_re = re.compile('a')\n_other_re = re.compile('b')\n",
    "sql/use.py": "from sql import x\n\n\ndef go(x):\n    x = 1\n    return x.render()\n",
}


@pytest.mark.parametrize(
    ("issue", "line", "expected"),
    [
        ("wrong", '    "Ansi",', True),  # the list of exports
        ("wrong", "_ansi_re = re.compile('a')", True),  # a constant of another module
        ("wrong", "_other_re = re.compile('b')", False),
        ("wrong", "        step_20()", True),  # two subclasses override it
        ("T20 is wrong", "        exp.T20: 20,", True),  # an entry of a table
        ("T20 is wrong", "        exp.T14: 14,", False),
        ("Change it everywhere", "    return x.render()", True),
        ("Change it", "    return x.render()", False),
    ],
)
def test_what_an_edit_needs_is_shown(issue: str, line: str, expected: bool) -> None:
    snapshot, chunker = MemorySnapshot(PROJECT), TreeSitterChunker()
    chunks = chunker(snapshot.files["sql/dialects.py"], PROJECT["sql/dialects.py"])
    by_name = {chunk.symbol: chunk for chunk in chunks}
    text = pack(
        Problem(issue, ""),
        make_ranking([by_name["Ansi.render"], by_name["Other.render"]]),
        snapshot,
        ApproximateCounter(),
        PackingOptions(budget=900, support_share=0.7),
        chunker=chunker,
    ).text
    assert (f"\n{line}\n" in text) is expected


def test_a_function_that_ranks_first_has_no_holes() -> None:
    body = "".join(f"    step_{n}()\n" for n in range(60))
    files = {"a.py": f"def first():\n{body}\n\ndef second():\n    pass\n"}
    snapshot, chunker = MemorySnapshot(files), TreeSitterChunker()
    chunks = [c for c in chunker(snapshot.files["a.py"], files["a.py"]) if c.symbol]
    options = PackingOptions(budget=560)
    text = pack(
        Problem("step_9", ""), make_ranking(chunks), snapshot, ApproximateCounter(), options
    ).text
    assert body in text
