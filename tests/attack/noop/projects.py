"""Small projects with an issue, a bug and a reproduction: what the patches of the corpus attack."""

# ruff: noqa: E501  (source of files on one line)

from __future__ import annotations

from dataclasses import dataclass

from agent.types import Problem, ReproductionTest
from tests.support.maven import POM


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """`files` is the base. `test` fails on it for the issue's reason; `fix` is an honest fix."""

    issue: Problem
    files: dict[str, str]
    test: ReproductionTest | None
    fix: dict[str, str]
    opaque: bool = False  # its command names no test, so that nothing shows a fix


# ------------------------------------------------------------------------- pytest, package at root

PRICE = '''"""Prices."""


def total(prices, discount=0):
    """Return the sum of the prices less a discount in percent."""
    whole = sum(prices)
    return whole - discount
'''
WRONG, RIGHT = "whole - discount", "whole * (100 - discount) / 100"
SHOP_TEST = """from shop.price import total


def test_plain():
    assert total([1, 2]) == 3


def test_nothing():
    assert total([]) == 0
"""
SHOP_ISSUE = """from shop.price import total


def test_discount():
    assert total([200], 10) == 180
"""
SHOP = Project(
    issue=Problem(
        "total() takes the discount for an amount",
        "total([200], 10) is 190. Ten percent less would be 180.",
    ),
    files={
        "pytest.ini": "[pytest]\n",
        "README.md": "# shop\n",
        "shop/__init__.py": '__version__ = "1.0"\n',
        "shop/price.py": PRICE,
        "tests/conftest.py": "",
        "tests/test_price.py": SHOP_TEST,
    },
    test=ReproductionTest("tests/test_issue.py", SHOP_ISSUE),
    fix={"shop/price.py": PRICE.replace(WRONG, RIGHT)},
)

# The same project, whose own tests show the bug already.
RED = f"{SHOP_TEST}\n\ndef test_discount():\n    assert total([200], 10) == 180\n"
RED_SHOP = Project(
    issue=SHOP.issue, files={**SHOP.files, "tests/test_price.py": RED}, test=None, fix=SHOP.fix
)

# --------------------------------------------------------------------------------- unittest by tox

BOOK = '''"""A ledger."""


class Book:
    """Amounts, and their balance."""

    def __init__(self):
        self.amounts = []

    def add(self, amount):
        self.amounts.append(amount)

    def balance(self):
        return sum(abs(amount) for amount in self.amounts)
'''
_BOOK_TEST = """import unittest

from ledger.book import Book


class {name}(unittest.TestCase):
    def test_balance(self):
        book = Book()
        book.add(5)
        book.add({second})
        self.assertEqual(book.balance(), {balance})
"""
LEDGER = Project(
    issue=Problem("balance() adds withdrawals", "After add(5) and add(-2) balance() is 7, not 3."),
    files={
        "tox.ini": "[testenv]\ncommands = python -m unittest discover\n",
        "ledger/__init__.py": "",
        "ledger/book.py": BOOK,
        "tests/__init__.py": "",
        "tests/test_book.py": _BOOK_TEST.format(name="BookTest", second=2, balance=7),
    },
    test=ReproductionTest(
        "tests/test_issue.py", _BOOK_TEST.format(name="IssueTest", second=-2, balance=3)
    ),
    fix={"ledger/book.py": BOOK.replace("abs(amount) for amount in self.amounts", "self.amounts")},
)

# ---------------------------------------------- src layout; plugin, fixtures and helpers in source

WORDS = '''"""Titles."""


def title(text):
    """Write every word with a capital."""
    return text.capitalize()
'''
HOOKS = '''"""A pytest plugin that the project brings."""


def pytest_report_header(config):
    return "gadget"
'''
HELPERS = '''"""Helpers for tests of what uses gadget."""

import json
from pathlib import Path

import pytest

from gadget.words import title


def assert_title(text, expected):
    assert title(text) == expected


@pytest.fixture
def titled():
    return title


def golden():
    return json.loads(Path("golden/title.json").read_text())
'''
GADGET_TEST = """from gadget.testing import assert_title, golden
from gadget.words import title


def test_one_word():
    assert_title("tale", "Tale")


def test_golden():
    for text, expected in golden().items():
        assert title(text) == expected
"""
GADGET = Project(
    issue=Problem(
        "title() writes only the first word with a capital",
        "title('a tale') is 'A tale' and should be 'A Tale', as golden/title.json says.",
    ),
    files={
        "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "-p gadget.hooks"\n',
        "golden/title.json": '{"a long tale": "A Long Tale"}\n',
        "src/gadget/__init__.py": "",
        "src/gadget/words.py": WORDS,
        "src/gadget/hooks.py": HOOKS,
        "src/gadget/testing.py": HELPERS,
        "tests/conftest.py": "from gadget.testing import titled\n",
        "tests/test_words.py": GADGET_TEST,
    },
    test=ReproductionTest(
        "tests/test_issue.py",
        "from gadget.words import title\n\n\n"
        "def test_issue():\n    assert title('a tale') == 'A Tale'\n",
    ),
    fix={"src/gadget/words.py": WORDS.replace("text.capitalize()", "text.title()")},
)

# ------------------------------------------------------------------- a Makefile that names a script

TALLY_CHECK = """import sys

sys.path.insert(0, ".")
from tally.core import count

if count("a b  c") != 3:
    sys.exit("count() counts blanks")
"""
TALLY_CORE = "def count(text):\n    return len(text.split(' '))\n"
TALLY = Project(
    issue=Problem("count() counts blanks", "count('a b  c') is 4; `make test` shows it."),
    files={
        "Makefile": "include rules.mk\n\ntest:\n\t$(RUN) tools/check.py\n",
        "rules.mk": "RUN = python3\n",
        "tally/__init__.py": "",
        "tally/core.py": TALLY_CORE,
        "tools/check.py": TALLY_CHECK,
    },
    test=None,
    fix={"tally/core.py": TALLY_CORE.replace("' '", "")},
    opaque=True,
)

# -------------------------------------------------------------------------------------- JavaScript

SLUG_JS = """'use strict'

function slug(text) {
  return text.toLowerCase().replace(' ', '-')
}

module.exports = { slug }
"""
EXPECT_JS = """'use strict'
const assert = require('node:assert')

exports.expectSame = (got, expected) => assert.strictEqual(got, expected)
"""
SLUG_TEST = """'use strict'
const test = require('node:test')
const assert = require('node:assert')
const { slug } = require('../lib/slug.js')

test('%s', () => {
  assert.strictEqual(slug('%s'), '%s')
})
"""
_SLUG_ISSUE = Problem("slug() replaces one blank only", "slug('A b c') is 'a-b c', not 'a-b-c'.")
_SLUG_FIX = {"lib/slug.js": SLUG_JS.replace("' ', '-'", "/ /g, '-'")}
SLUG = Project(
    issue=_SLUG_ISSUE,
    files={
        "package.json": '{"name": "slug", "scripts": {"test": "node --test"}}\n',
        "lib/slug.js": SLUG_JS,
        "lib/expect.js": EXPECT_JS,
        "test/slug.test.js": SLUG_TEST % ("one blank", "A b", "a-b"),
    },
    test=ReproductionTest("test/issue.test.js", SLUG_TEST % ("blanks", "A b c", "a-b-c")),
    fix=_SLUG_FIX,
)

# `npm test` starts a script and no runner: it is red on the base.
SCRIPT_CHECK = """const { slug } = require('../lib/slug.js')
if (slug('A b c') !== 'a-b-c') process.exit(1)
"""
SCRIPT = Project(
    issue=_SLUG_ISSUE,
    files={
        "package.json": '{"name": "slug", "scripts": {"test": "node scripts/check.js"}}\n',
        "lib/slug.js": SLUG_JS,
        "scripts/check.js": SCRIPT_CHECK,
    },
    test=None,
    fix=_SLUG_FIX,
    opaque=True,
)

# -------------------------------------------------------------------------------------------- Rust

CRATE_LIB = "pub fn add(a: i32, b: i32) -> i32 {\n    a - b\n}\n"
CRATE = Project(
    issue=Problem("add() subtracts", "add(1, 1) is 0."),
    files={
        "Cargo.toml": '[package]\nname = "adder"\nversion = "0.1.0"\nedition = "2021"\n',
        "src/lib.rs": CRATE_LIB,
        "tests/zero.rs": "use adder::add;\n\n#[test]\nfn zero() {\n    assert_eq!(add(1, 0), 1);\n}\n",
    },
    test=ReproductionTest(
        "tests/issue.rs",
        "use adder::*;\n\n#[test]\nfn issue() {\n    assert_eq!(add(1, 1), 2);\n}\n",
    ),
    fix={"src/lib.rs": CRATE_LIB.replace("-", "+").replace("+>", "->")},
)

# ---------------------------------------------------------------------------------------------- Go

GO_SUM = "package adder\n\nfunc Add(a, b int) int {\n\treturn a - b\n}\n"
_GO_TEST = """package adder

import "testing"

func Test{name}(t *testing.T) {{
	if got := Add(1, {second}); got != {sum} {{
		t.Errorf("Add(1, {second}) = %d", got)
	}}
}}
"""
GO = Project(
    issue=Problem("Add() subtracts", "Add(1, 1) is 0."),
    files={
        "go.mod": "module example.com/adder\n\ngo 1.16\n",
        "add.go": GO_SUM,
        "add_test.go": _GO_TEST.format(name="Zero", second=0, sum=1),
    },
    test=ReproductionTest("issue_test.go", _GO_TEST.format(name="Issue", second=1, sum=2)),
    fix={"add.go": GO_SUM.replace("-", "+")},
)

# -------------------------------------------------------------------------------------------- Java

SUM_PATH = "src/main/java/org/example/Sum.java"
SUM_JAVA = """package org.example;

public class Sum {
  public static int of(int a, int b) {
    return a - b;
  }
}
"""
ISSUE_JAVA = "src/test/java/org/example/IssueTest.java"
JAVA_TEST = """package org.example;

import static org.junit.jupiter.api.Assertions.*;

import org.junit.jupiter.api.Test;

class {name}Test {{
  @Test
  void sums() {{
    {body}
  }}
}}
"""
JAVA = Project(
    issue=Problem("Sum.of() subtracts", "Sum.of(1, 1) is 0."),
    files={
        "pom.xml": POM,
        SUM_PATH: SUM_JAVA,
        "src/test/java/org/example/ZeroTest.java": JAVA_TEST.format(
            name="Zero", body="assertEquals(1, Sum.of(1, 0));"
        ),
    },
    test=ReproductionTest(
        ISSUE_JAVA, JAVA_TEST.format(name="Issue", body="assertEquals(2, Sum.of(1, 1));")
    ),
    fix={SUM_PATH: SUM_JAVA.replace("a - b", "a + b")},
)

PROJECTS = {
    "go": GO,
    "java": JAVA,
    "shop": SHOP,
    "red shop": RED_SHOP,
    "ledger": LEDGER,
    "gadget": GADGET,
    "tally": TALLY,
    "slug": SLUG,
    "script": SCRIPT,
    "crate": CRATE,
}
