from __future__ import annotations

import pytest

from agent.repository.languages import (
    is_test_path,
    language_of,
)


@pytest.mark.parametrize(
    ("path", "language"),
    [
        ("a/b.py", "python"), ("stub.PYI", "python"), ("x.js", "javascript"),
        ("x.mjs", "javascript"), ("x.jsx", "javascript"), ("x.ts", "typescript"), ("x.tsx", "tsx"),
        ("x.go", "go"),
        ("x.rs", "rust"), ("X.java", "java"), ("x.c", "c"), ("x.h", "c"), ("x.cc", "cpp"),
        ("x.hpp", "cpp"), ("X.cs", "csharp"), ("x.rb", "ruby"), ("Gemfile", "ruby"),
        ("x.php", "php"), ("README.md", "markdown"), ("doc/x.rst", "rst"),
        ("pyproject.toml", "toml"),
        (".github/w.yml", "yaml"), ("package.json", "json"), ("setup.cfg", "ini"),
        ("x.sh", "shell"), ("Makefile", "make"), ("Makefile.am", "make"),
        ("Dockerfile.dev", "docker"),
        ("CMakeLists.txt", "cmake"), ("notes.txt", "text"), ("LICENSE", "text"), ("", "text"),
        ("dir.py/file", "text"),
    ],
)  # fmt: skip
def test_language_by_name(path: str, language: str) -> None:
    assert language_of(path) == language


@pytest.mark.parametrize(
    ("head", "language"),
    [
        (b"#!/usr/bin/env python3\n", "python"),
        (b"#!/usr/bin/env -S python3 -u\n", "python"),
        (b"#! /bin/bash\n", "shell"),
        (b"#!/opt/x/bin/node\n", "javascript"),
        (b"#!/usr/bin/unknown\n", "text"),
        (b"# python\n", "text"),
    ],
)
def test_language_by_interpreter_line(head: bytes, language: str) -> None:
    assert language_of("bin/tool", head) == language
    assert language_of("x.rb", head) == "ruby"  # the name comes first


@pytest.mark.parametrize(
    "path",
    [
        "tests/helpers/data.json", "pkg/tests/test_a.py", "pkg/sub/tests/base.py", "test/a.py",
        "testing/test_a.py", "testing/support.py", "pkg/test_a.py", "pkg/a_test.py", "conftest.py",
        "pkg/conftest.py", "app/tests.py", "pkg/a_test.go", "src/a.spec.ts", "src/a.test.tsx",
        "src/__tests__/a.js", "mod/src/test/java/A.java", "src/main/FooTest.java", "a/FooTests.cs",
        "a/TestFoo.java", "spec/models/user_spec.rb", "spec/helper.rb", "packages/a/test/x.js",
        "activerecord/test/cases/base.rb", "src/a_unittest.cc", "tests/A.php", "x/UserTest.php",
    ],
)  # fmt: skip
def test_tests_are_recognised(path: str) -> None:
    assert is_test_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "django/test/client.py", "numpy/testing/utils.py", "Lib/test/support.py", "pkg/testing.py",
        "pkg/latest.py", "pkg/contest.py", "django/core/management/commands/test.py",
        "org/springframework/test/Context.java", "src/Latest.java", "src/Contest.cs",
        "activesupport/lib/active_support/testing/assertions.rb", "lib/rspec/test/helper.rb",
        "packages/core/testing/index.ts", "specification/x.py", "protest/a.py", "setup.py",
        "pkg/attest.go", "pkg/runtests.py", "judging/weak_tests.py",
    ],
)  # fmt: skip
def test_library_code_is_no_test(path: str) -> None:
    assert not is_test_path(path)
