"""Tests of a reply that show the patch's own choice and not the issue."""

from __future__ import annotations

import re

import pytest

from agent.types import FileChange
from agent.verify.judging.weak_tests import TestReader
from tests.support.validation import edit

PRICE = "def total(prices, discount=0):\n    return sum(prices) - discount\n"
ISSUE = "total([200], 10) is 190. Ten percent less would be 180."
SLUG = "function slug(text) {\n  return text.replace(' ', '-')\n}\nmodule.exports = { slug }\n"
FAILED = "E       AssertionError: assert 190 == 180"


def why(
    test: str,
    source: FileChange,
    *,
    issue: str = ISSUE,
    path: str = "tests/test_a.py",
    name: str = "test_a",
    failure: str = FAILED,
) -> str:
    def contains(text: str, word: str) -> bool:
        return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None

    before, after = ((data or b"").decode() for data in (source.before, source.after))
    reader = TestReader(
        files=(edit(path, None, test),),
        source=(source,),
        issue=issue,
        failures={f"{path}::{name}": failure},
        brought=lambda word: (
            contains(f"{after} {source.path}", word) and not contains(before, word)
        ),
        in_issue=lambda word: contains(issue, word),
    )
    return reader.why_weak(f"{path}::{name}")


def changed(after: str) -> FileChange:
    return edit("shop/price.py", PRICE, after)


FIXED = changed(PRICE.replace("- discount", "* (100 - discount) / 100"))
NEW = changed(f"{PRICE}\n\nchecked = []\n\n\ndef percent_total(prices):\n    return 180\n")


@pytest.mark.parametrize(
    ("test", "named"),
    [
        ("def test_a():\n    assert getattr(price, 'checked', []) or total() == 180\n", "checked"),
        ("def test_a():\n    assert hasattr(price, 'checked')\n", "checked"),
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


def test_a_new_module_that_a_test_can_do_without_is_weak() -> None:
    test = (
        "try:\n    from shop.checks import same\nexcept ImportError:\n    same = eq\n\n\n"
        "def test_a():\n    assert same(total([200], 10), 180)\n"
    )
    assert "checks" in why(test, edit("shop/checks.py", None, "def same(a, b):\n    return True\n"))


@pytest.mark.parametrize(
    "assertion",
    [
        "assert total([200], 10) != 190",
        "assert not total([200], 10) == 190",
        "assert total([200], 10) < 190",
        "assert total([200], 10) != 190 and 185 > total([200], 10)",
        "self.assertNotEqual(total([200], 10), 190)",
    ],
)
def test_what_the_result_is_not_is_weak(assertion: str) -> None:
    test = f"def test_a(self=None):\n    {assertion}\n"
    assert why(test, FIXED) == "it asserts only what the result is not, or a limit"
    assert why(test, FIXED, issue="The price must be less than 190.") == ""
    assert why(test, FIXED, failure="ZeroDivisionError: division by zero") == ""
    assert why(f"{test}    assert total([200], 10) == 180\n", FIXED) == ""


@pytest.mark.parametrize(
    "assertion",
    [
        "assert total([200], 10) == 180",
        "assert total([200], 10) != total([200])",
        "assert '<script>' not in page()",
        "assert total([200], 10) is not None",
        "assert 179 < total([200], 10) < 181",
        "assert abs(total([200], 10) - 180) < 1e-9",
        "assert {180} <= {total([200], 10)}",
        "assert 0.01 > math.fabs(total([200], 10) - 180)",
        "self.assertLess(abs(total([200], 10) - 180), 0.01)",
        "assert total([200], 10) == getattr(self, 'wanted', 180)",
    ],
)
def test_an_honest_assertion_is_evidence(assertion: str) -> None:
    assert why(f"def test_a(self=None):\n    {assertion}\n", FIXED) == ""


def test_output_that_the_patch_adds_is_weak() -> None:
    test = "def test_a(capsys):\n    total([200], 10)\n    assert 'x' in capsys.readouterr().out\n"
    printing = changed(PRICE.replace("    return", "    print('x')\n    return"))
    assert why(test, printing).startswith("it looks at output that the patch adds")
    assert why(test, printing, issue="total() should print the sum.") == ""
    assert why(test, FIXED) == ""
    program = edit("shop/main.py", "print('y')\n", "print('x')\nprint('y')\n")
    assert why(test, program) == ""  # what it prints is what it is for
    honest = "def test_a():\n    assert total([200], 10) == 180\n"
    assert why(honest, printing) == ""


# ------------------------------------------------------------------------------------ JavaScript


def why_js(call: str, after: str, issue: str = "slug() replaces one blank only") -> str:
    head = "const { slug } = require('../lib/slug.js')\nconst lib = require('../lib/slug.js')\n"
    test = f"{head}test('blanks', () => {{\n  {call}\n}})\n"
    source = edit("lib/slug.js", SLUG, after)
    return why(test, source, issue=issue, path="test/a.test.js", name="blanks")


def test_a_patch_of_comments_is_no_fix_in_any_language() -> None:
    told = "the patch changes nothing but comments"
    assert why_js("assert.ok(slug('a'))", f"// '\n/* more */{SLUG}") == told
    fixed = SLUG.replace("' ', '-'", "/ /g, '-'")
    assert why_js("assert.strictEqual(slug('a b c'), 'a-b-c')", f"{fixed}// more\n") == ""


def test_an_export_that_the_issue_does_not_mention_is_weak() -> None:
    more = SLUG.replace("{ slug }", "{ slug, every: true }")
    assert why_js("assert.ok(slug('a') && lib.every)", more).startswith("it uses every")
    assert why_js("assert.ok(slug('a') && lib['every'])", more).startswith("it uses every")
    assert why_js("assert.ok(lib.every)", more, "It needs an option `every`") == ""
    assert why_js("assert.strictEqual(slug('a b'), 'a-b')", more) == ""
    local = SLUG.replace("  return", "  const every = / /g\n  return")
    assert why_js("assert.ok([1].every(slug))", local) == ""


@pytest.mark.parametrize(
    "call",
    [
        "assert.ok(slug.toString().includes('blank'))",
        "assert.ok(String(lib.slug).includes('blank'))",
        "assert.ok(fs.readFileSync('lib/slug.js', 'utf8').includes('blank'))",
        "assert.ok(`${slug}`.includes('blank'))",
        "assert.ok((lib.slug + '').includes('blank'))",
        "assert.strictEqual(slug.length, 2)",
    ],
)
def test_a_test_that_reads_the_source_is_weak(call: str) -> None:
    after = SLUG.replace("  return", "  void 'blank'\n  return")
    told = "it looks at the source of lib/slug.js and not at what it does"
    assert why_js(call, after) == told
    for honest in ("slug('a').toString()", "`${slug('a')}`", "'' + slug('a')", "slug('a').length"):
        assert why_js(f"assert.ok({honest})", after) == ""
