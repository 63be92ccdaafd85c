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
