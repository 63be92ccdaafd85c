"""What a patch takes away from existing tests."""

from __future__ import annotations

import pytest

from agent.verify.judging.edited_tests import edited_inside, find_losses
from tests.support.validation import edit

BEFORE = """
import pytest

def test_a():
    assert f(1) == 1
    assert f(2) == 2

@pytest.mark.parametrize("n", [1, 2, 3])
def test_b(n):
    assert n

class TestC:
    def test_d(self):
        self.assertEqual(f(), 3)
"""
PATH = "tests/test_x.py"


def words(after: str | None, before: str = BEFORE, path: str = PATH, *more: str) -> str:
    new = [edit(f"tests/test_new{i}.py", None, text) for i, text in enumerate(more)]
    return find_losses([edit(path, before, after), *new]).words


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("    assert f(2) == 2\n", "", "takes 1 assertion out of existing tests"),
        ("f(2) == 2", "True", "takes 1 assertion out of existing tests"),
        ("f(2) == 2", "f(2) == 2 or True", "takes 1 assertion out of existing tests"),
        ("self.assertEqual(f(), 3)", "self.assertTrue(True)", "takes 1 assertion out"),
        ("[1, 2, 3]", "[1]", "removes 1 test (2 cases of test_b)"),
        ("def test_a", "@pytest.mark.skip\ndef test_a", "skips 1 test (test_a)"),
        ("    assert f(1)", "    pytest.skip('no')\n    assert f(1)", "skips 1 test (test_a)"),
        ("class TestC", "@unittest.skip('x')\nclass TestC", "skips 1 test (TestC.test_d)"),
        ("def test_a", "def _a", ""),  # renamed with its body: see the next test
        ("f(1) == 1", "f(1) == 5", ""),
        ("assert n", "assert n\n    assert n > 0", ""),
    ],
)
def test_losses_in_python(old: str, new: str, found: str) -> None:
    assert old in BEFORE
    said = words(BEFORE.replace(old, new))
    assert said.startswith(found) if found else said == ""


def test_a_deleted_file_is_counted() -> None:
    removed = "removes 3 tests (TestC.test_d, test_a, test_b)"
    assert words(None) == f"{removed} and takes 4 assertions out of existing tests"


def test_a_test_that_moves_or_gets_another_name_is_not_lost() -> None:
    assert words(None, BEFORE, PATH, BEFORE) == ""
    assert words(BEFORE.replace("test_a", "test_better")) == ""


def test_new_assertions_elsewhere_make_up_for_nothing() -> None:
    new = "def test_z():\n" + "    assert f(9)\n" * 9
    assert words(None, "def test_a():\n    assert f(1)\n", PATH, new).startswith("removes 1 test")


@pytest.mark.parametrize(
    ("path", "before", "after", "found"),
    [
        (
            "a.test.js",
            "it('adds', () => {\n  expect(f()).toBe(1);\n});\nit('b', () => { expect(1) });\n",
            "it('b', () => { expect(1) });\n",
            "removes 1 test ('adds') and takes 1 assertion out of existing tests",
        ),
        (
            "a_test.go",
            'func TestA(t *testing.T) {\n\tif f() != 1 { t.Fatal("x") }\n}\n',
            "func TestA(t *testing.T) {\n}\n",
            "takes 1 assertion out of existing tests",
        ),
        (
            "tests/a.rs",
            "#[test]\nfn adds() { assert_eq!(f(), 1); }\n",
            "#[test]\n#[ignore]\nfn adds() { assert_eq!(f(), 1); }\n",
            "skips 1 test (adds)",
        ),
        (
            "src/test/java/ATest.java",
            "@Test\npublic void adds() { assertEquals(1, f()); }\n",
            "",
            "removes 1 test (adds) and takes 1 assertion out of existing tests",
        ),
    ],
)
def test_losses_in_other_languages(path: str, before: str, after: str, found: str) -> None:
    assert words(after, before, path) == found


def test_tests_inside_rust_source() -> None:
    before = "fn f() -> i32 { 2 }\n#[test]\nfn one() { assert_eq!(f(), 1); }\n#[test]\nfn b() {}\n"
    change = edit("src/lib.rs", before, before.replace("f(), 1", "f(), 2"))
    assert edited_inside([change]) == {"one"}
    assert edited_inside([edit("src/lib.rs", before, before.replace("{ 2 }", "{ 1 }"))]) == set()
    assert find_losses((), [edit("src/lib.rs", before, "fn f() {}\n")]).words.startswith(
        "removes 2 tests (b, one)"
    )
