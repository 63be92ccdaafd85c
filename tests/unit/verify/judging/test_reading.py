"""What is read off tests and source where no run can tell."""

from __future__ import annotations

import pytest

from agent.types import FileChange
from agent.verify.judging.reading import (
    asks_for_runner,
    edited_inside,
    find_losses,
    why_weak,
)
from agent.verify.judging.reproduction import NameChecks
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
    return find_losses([edit(path, before, after), *new])


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("    assert f(2) == 2\n", "", "takes 1 assertion out of existing tests"),
        ("f(2) == 2", "True", "takes 1 assertion out of existing tests"),
        ("f(2) == 2", "f(2) == 2 or True", "takes 1 assertion out of existing tests"),
        ("self.assertEqual(f(), 3)", "self.assertTrue(True)", "takes 1 assertion out"),
        ("def test_a", "@pytest.mark.skip\ndef test_a", "skips 1 test (test_a)"),
        ("    assert f(1)", "    pytest.skip('no')\n    assert f(1)", "skips 1 test (test_a)"),
        ("def test_a", "def _a", "takes 2 assertions out"),  # no runner finds it
        ("f(1) == 1", "f(1) == 5", ""),
        ("assert n", "assert n\n    assert n > 0", ""),
    ],
)
def test_losses_in_python(old: str, new: str, found: str) -> None:
    assert old in BEFORE
    said = words(BEFORE.replace(old, new))
    assert said.startswith(found) if found else said == ""


def test_a_deleted_file_is_counted() -> None:
    assert words(None) == "takes 4 assertions out of existing tests"


def test_a_test_that_moves_or_gets_another_name_is_not_lost() -> None:
    assert words(None, BEFORE, PATH, BEFORE) == ""
    assert words(BEFORE.replace("test_a", "test_better")) == ""


def test_new_assertions_elsewhere_make_up_for_nothing() -> None:
    new = "def test_z():\n" + "    assert f(9)\n" * 9
    assert words(None, "def test_a():\n    assert f(1)\n", PATH, new).startswith("takes 1 asser")


@pytest.mark.parametrize(
    ("path", "before", "after", "found"),
    [
        (
            "a.test.js",
            "it('adds', () => {\n  expect(f()).toBe(1);\n});\nit('b', () => { expect(1) });\n",
            "it('b', () => { expect(1) });\n",
            "takes 1 assertion out of existing tests",
        ),
        (
            "a.test.js",
            "it('a', () => { expect(1) });\n\ndescribe('should', () => {\n  it('b', f);\n});\n",
            "it('a', () => { expect(1) });\nit('new', () => { expect(2) });\n\n"
            "describe('should', () => {\n  it('b', f);\n});\n",
            "",
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
            "takes 1 assertion out of existing tests",
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
    assert find_losses((), [edit("src/lib.rs", before, "fn f() {}\n")]).startswith("takes 1")


PRICE = "def total(prices, discount=0):\n    return sum(prices) - discount\n"
ISSUE = "total([200], 10) is 190. Ten percent less would be 180."
SLUG = "function slug(text) {\n  return text.replace(' ', '-')\n}\nmodule.exports = { slug }\n"


def why(
    test: str,
    source: FileChange,
    *,
    issue: str = ISSUE,
    path: str = "tests/test_a.py",
    name: str = "test_a",
) -> str:
    names = NameChecks((source,), issue)
    return why_weak(f"{path}::{name}", (edit(path, None, test),), (source,), names)


def changed(after: str) -> FileChange:
    return edit("shop/price.py", PRICE, after)


FIXED = changed(PRICE.replace("- discount", "* (100 - discount) / 100"))


@pytest.mark.parametrize(
    ("assertion", "weak"),
    [
        ("assert total([200], 10) != 190", True),
        ("self.assertNotEqual(total([200], 10), 190)", True),
        ("assert total([200], 10) == 180", False),
        ("assert total([200], 10) < 190", False),
        ("assert total([200], 10) != 190\n    assert total([200], 10) == 180", False),
    ],
)
def test_what_the_result_is_not_is_weak(assertion: str, weak: bool) -> None:
    reason = why(f"def test_a(self=None):\n    {assertion}\n", FIXED)
    assert reason == ("it asserts only what the result is not" if weak else "")


NEW = changed(f"{PRICE}\n\nchecked = []\n\n\ndef percent_total(prices):\n    return 180\n")


@pytest.mark.parametrize(
    ("test", "named"),
    [
        ("def test_a():\n    assert getattr(price, 'checked', []) or total() == 180\n", "checked"),
        ("def test_a():\n    assert 'checked' in dir(price)\n", "checked"),
        ("def test_a():\n    assert attrgetter('price.checked')(shop)\n", "checked"),
        (
            "try:\n    from shop.price import percent_total as total\nexcept ImportError:\n"
            "    from shop.price import total\n\n\ndef test_a():\n    assert total([200]) == 180\n",
            "percent_total",
        ),
        (
            "def test_a():\n    with suppress(AttributeError):\n        assert price.checked\n"
            "        return\n    assert 0\n",
            "checked",
        ),
    ],
)
def test_asking_for_a_name_of_the_patch_is_weak(test: str, named: str) -> None:
    assert why(test, NEW) == f"it asks for {named}, which the issue does not speak of"
    assert why(test, NEW, issue=f"There should be {named}.") == ""
    assert why(test, FIXED) == ""


@pytest.mark.parametrize(
    "asked",
    [
        "total.__code__",
        "inspect.getsource(total)",
        "['git', 'log']",
        "open('shop/price.py').read()",
    ],
)
def test_looking_at_the_source_is_weak(asked: str) -> None:
    assert why(f"def test_a():\n    assert f({asked})\n", FIXED).startswith(
        "it looks at the source"
    )


def test_a_test_may_import_a_library_as_the_patch_does() -> None:
    test = (
        "import os\nfrom shop.price import total\n\n\ndef test_a():\n    assert os.sep + total()\n"
    )
    assert why(test, changed(f"import os\n{PRICE}")) == ""


def test_a_test_may_open_its_own_file_and_run_the_program() -> None:
    for body in ("open(tmp / 'price.py').read()", "run(['python', 'shop/price.py'])"):
        assert why(f"def test_a(tmp):\n    assert {body}\n", FIXED) == ""


# ------------------------------------------------------------------------------------ JavaScript


def why_js(call: str, after: str, issue: str = "slug() replaces one blank only") -> str:
    head = "const { slug } = require('../lib/slug.js')\nconst lib = require('../lib/slug.js')\n"
    test = f"{head}test('blanks', () => {{\n  {call}\n}})\n"
    source = edit("lib/slug.js", SLUG, after)
    return why(test, source, issue=issue, path="test/a.test.js", name="blanks")


def test_an_export_that_the_issue_does_not_mention_is_weak() -> None:
    more = SLUG.replace("{ slug }", "{ slug, every: true }")
    assert why_js("assert.ok(slug('a') && lib.every)", more).startswith("it asks for every")
    assert why_js("assert.ok(slug('a') && lib['every'])", more).startswith("it asks for every")
    assert why_js("assert.ok(lib.every)", more, "It needs an option `every`") == ""
    assert why_js("assert.strictEqual(slug('a b'), 'a-b')", more) == ""
    local = SLUG.replace("  return", "  const every = / /g\n  return")
    assert why_js("assert.ok([1].every(slug))", local) == ""


@pytest.mark.parametrize(
    "call",
    [
        "assert.ok(slug.toString().includes('blank'))",
        "assert.ok(fs.readFileSync('lib/slug.js', 'utf8').includes('blank'))",
        "assert.ok(`${slug}`.includes('blank'))",
        "assert.ok((lib.slug + '').includes('blank'))",
        "assert.strictEqual(slug.length, 2)",
    ],
)
def test_a_test_that_reads_the_source_is_weak(call: str) -> None:
    after = SLUG.replace("  return", "  void 'blank'\n  return")
    told = "it looks at the source and not at what it does"
    assert why_js(call, after) == told
    for honest in ("slug('a').toString()", "`${slug('a')}`", "'' + slug('a')", "slug('a').length"):
        assert why_js(f"assert.ok({honest})", after) == ""


@pytest.mark.parametrize(
    ("path", "code", "asks"),
    [
        ("m.js", "assert.strictEqual = () => {};\n", True),
        ("m.ts", "if (process.env.JEST_WORKER_ID) { total = 3; }\n", True),
        ("m.mjs", "globalThis.expect = () => ({ toBe() {} });\n", True),
        ("m.go", 'var quick = flag.Lookup("test.v") != nil\n', True),
        ("m.rs", "fn f() -> bool { cfg!(any(test, windows)) }\n", True),
        ("M.java", 'boolean t = hasClass("org.junit.Test");\n', True),
        ("m.py", "import sys\nx = sys._getframe(1)\n", False),  # it is replayed
        ("m.js", "if (assert.strictEqual === old) {}\nconst x = process.env.HOME;\n", False),
        ("main.go", "package main\nvar x = os.Args\n", False),
        ("m.rs", '#[cfg(test)]\nif cfg!(target_os = "linux") {}\n', False),
    ],
)
def test_code_that_asks_for_its_runner_where_nothing_is_replayed(
    path: str, code: str, *, asks: bool
) -> None:
    assert bool(asks_for_runner([edit(path, "", code)])) is asks
    assert asks_for_runner([edit(path, code, f"{code}\n")]) == ""
