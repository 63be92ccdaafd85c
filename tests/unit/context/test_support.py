from __future__ import annotations

import pytest

from agent.context.support import ImportStatement, import_statements


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


def test_python() -> None:
    assert found("python", PYTHON) == [(6, 6), (7, 7), (8, 11), (12, 12), (13, 14)]


def test_names() -> None:
    (statement,) = import_statements(["from a.b import (", "    c as d,", ")"], "python")
    assert statement == ImportStatement(
        1, 3, frozenset({"from", "a", "b", "import", "c", "as", "d"})
    )


@pytest.mark.parametrize(
    ("language", "source", "expected"),
    [
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
def test_other_languages(language: str, source: str, expected: list[tuple[int, int]]) -> None:
    assert found(language, source) == expected


def test_a_bracket_that_never_closes_takes_one_line() -> None:
    assert found("python", "from a import (\n" + "x = 1\n" * 100) == [(1, 1)]
