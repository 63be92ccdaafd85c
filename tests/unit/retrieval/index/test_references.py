from __future__ import annotations

import pytest

from agent.retrieval.index.references import ModuleTable, imports


@pytest.mark.parametrize(
    ("language", "text", "found"),
    [
        ("python", "import os, a.b as c  # why\n", ("os", "a/b")),
        ("python", "from a.b import c, d as e\n", ("a/b/c", "a/b/d")),
        ("python", "from a import (\n    b,\n    c,  # why\n)\n", ("a/b", "a/c")),
        ("python", "    from . import x\nfrom ..y.z import w\n", ("./x", "../y/z/w")),
        ("python", "from a import *\nfrom a import \\\n", ("a",)),
        ("python", "fromage = 1\nimportant(a)\n", ()),
        ("javascript", "import a from './x/y.js'\nexport * from '../z'\n", ("./x/y", "../z")),
        ("javascript", "import {\n  a,\n} from 'pkg/mod'\n", ("pkg/mod",)),
        ("typescript", "const a = require('./b')\nconst s = 'hello'\n", ("./b",)),
        ("go", 'import (\n\t"fmt"\n\tx "host/a/b"\n)\n', ("fmt", "host/a/b")),
        ("go", 'import "host/a"\n', ("host/a",)),
        ("java", "import static a.b.C;\nimport a.b.*;\n", ("a/b/C", "a/b")),
        ("csharp", "using A.B;\n", ("A/B",)),
        ("rust", "use crate::a::{B, c};\npub use super::d;\nmod e;\n",
         ("a/B", "a/c", "../d", "./e")),
        ("c", '#include "x/y.h"\n#include <stdio.h>\n', ("./x/y", "stdio")),
        ("ruby", "require_relative '../a/b'\nrequire 'c'\n", ("../a/b", "c")),
        ("php", "use A\\B\\C;\nrequire_once 'd/e.php';\n", ("A/B/C", "d/e")),
        ("markdown", "import a\n", ()),
    ],
)  # fmt: skip
def test_imports(language: str, text: str, found: tuple[str, ...]) -> None:
    assert imports(text, language) == found


PATHS = [
    "src/pkg/__init__.py",
    "src/pkg/core.py",
    "src/pkg/sub/core.py",
    "src/pkg/sub/__init__.py",
    "tools/core.py",
    "web/index.js",
    "web/util.js",
    "cmd/server/main.go",
    "cmd/server/flags.go",
]


@pytest.mark.parametrize(
    ("line", "importer", "found"),
    [
        ("pkg/core/helper", "tools/core.py", ["src/pkg/core.py"]),
        ("pkg/core", "tools/core.py", ["src/pkg/core.py"]),
        ("pkg/Name", "tools/core.py", ["src/pkg/__init__.py"]),
        ("./core/x", "src/pkg/sub/__init__.py", ["src/pkg/sub/core.py"]),
        ("../core", "src/pkg/sub/core.py", ["src/pkg/core.py"]),
        ("./Name", "src/pkg/sub/core.py", ["src/pkg/sub/__init__.py"]),
        ("....../core", "src/pkg/sub/core.py", []),
        ("./util", "web/index.js", ["web/util.js"]),
        (
            "example.org/host/cmd/server",
            "web/util.js",
            ["cmd/server/main.go", "cmd/server/flags.go"],
        ),
        ("core", "src/pkg/sub/core.py", ["src/pkg/sub/core.py"]),
        ("core", "web/util.js", []),
        ("os", "web/util.js", []),
    ],
)
def test_resolving(line: str, importer: str, found: list[str]) -> None:
    table = ModuleTable(PATHS)
    assert [PATHS[n] for n in table.find(line, PATHS.index(importer))] == found
