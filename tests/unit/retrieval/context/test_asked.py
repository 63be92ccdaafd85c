"""Each form in which a reply may name code, and what it is sent for it."""

from __future__ import annotations

import pytest

from agent.retrieval.context import AskedCode, CodeRequests
from agent.retrieval.index.chunking import TreeSitterChunker
from agent.types import Chunk, ChunkKind, Ranking, ScoredChunk
from tests.support.fakes import MemorySnapshot
from tests.support.tokens import ApproximateCounter

DOCSTRING = "".join(f"        Sentence {number} of the documentation.\n" for number in range(80))
OPERATORS = (
    '''"""Operators."""

# Which binds closest.
PRECEDENCE = {
    "(": 10,
    "[": 9,
    "+": 5,
}


class Column:
    """A column."""

    COLUMN_OPERATORS = (
        "in",
        "like",
    )

    def __init__(self):
        self.alias = None

    def label(self, name):
        """Name it.

'''
    + DOCSTRING
    + '''        """
        chosen = name or self.alias
        return chosen.strip()


def outer():
    def inner():
        return 1

    return inner
'''
)
LONG = "".join(f"def step_{number}():\n    return {number}\n\n\n" for number in range(150))
RULE = """\
module.exports = {
  create(context) {
    const report = (node) => {
      context.report(node);
    };
    return {
      Identifier(node) {
        report(node);
      },
    };
  },
};
"""
FILES = {
    "db/operators.py": OPERATORS,
    "db/long.py": LONG,
    "db/other.py": "class Row:\n    def label(self):\n        return 2\n",
    "web/table.js": 'const ORDER = {\n  "}": 1,\n  plus: 2,\n};\nfunction show() {}\n',
    "many.py": "\n".join(f"class C{n}:\n    def twin(self):\n        pass\n" for n in range(6)),
    "sql/expressions/__init__.py": "from .dates import Year\n\n__all__ = [\n    'Year',\n]\n",
    "sql/expressions/dates.py": (
        "class Base:\n    def to_sql(self):\n        return 'Y'\n\n\n"
        "class Year(Base):\n    name = 'year'\n"
    ),
    "sql/parse.py": "from sql import expressions as exp\n\n\ndef parse():\n    return exp.Year\n",
    "lib/rule.js": RULE,
    "lib/rule.test.js": (
        'describe("rule", () => {\n  it("fixes all", () => {\n    run(1);\n  });\n});\n'
    ),
    "lib/load.ts": "export const load: (\n  text: string,\n) => Api = makeLoad(parse);\n",
    "lib/load.spec.js": 'describe(".load", () => {\n  load("");\n});\n',
    "lib/index.js": 'export { a } from "./a";\nexport default {\n  run,\n};\n',
    "lib/useCart.ts": "export default () => {\n  return 1;\n};\n",
    ".env": "KEY=1\n",
}
COUNTER = ApproximateCounter()


def ask(*names: str, budget: int = 12_000, shown=None, ranking=None) -> AskedCode:
    requests = CodeRequests(MemorySnapshot(FILES), COUNTER, TreeSitterChunker(), budget)
    known = ranking or Ranking((), (), 0)
    return requests.find(names, known, [shown] if shown else [], budget)


@pytest.mark.parametrize(
    ("name", "header", "holds"),
    [
        ("db/operators.py:Column.label", "### db/operators.py:L", "return chosen.strip()"),
        ("Column.label", "### db/operators.py:L", "Sentence 79"),
        ("`Column.label()`", "### db/operators.py:L", "return chosen.strip()"),
        ("def outer", "### db/operators.py:L", "return inner"),
        ("outer(a, b) (the function)", "### db/operators.py:L", "return inner"),
        ("db.operators.outer", "### db/operators.py:L", "return inner"),
        ("db/operators.py::Column::label", "### db/operators.py:L", "return chosen.strip()"),
        ("inner", "### db/operators.py:L", "def inner"),
        ("Column.alias", "### db/operators.py:L", "self.alias = None"),
        ("PRECEDENCE", "### db/operators.py:L4-8 of ", '    "+": 5,\n}\n'),
        ("db/operators.py:PRECEDENCE", "### db/operators.py:L4-8 of ", '"(": 10'),
        ("COLUMN_OPERATORS", "### db/operators.py:L14-17", '"like",\n    )\n'),
        ("Column.COLUMN_OPERATORS", "### db/operators.py:L14-17", '"in"'),
        ("ORDER", "### web/table.js:L1-4 of ", "plus: 2,\n};\n"),
        ("exp.Year", "### sql/expressions/dates.py:L6-", "class Year"),
        ("sql/expressions:Year", "### sql/expressions/dates.py:L6-", "class Year"),
        ("sql/parse:parse", "### sql/parse.py:L4-5 of 5\n", "return exp.Year"),
        ("Year.to_sql", "### sql/expressions/dates.py:L2-3", "return 'Y'"),
        (
            "sql/expressions/__init__.py:__all__",
            "### sql/expressions/__init__.py:L3-5 of 5\n",
            "'Year'",
        ),
        (
            "create > report",
            "### lib/rule.js:L3-5 of 12 create > report\n",
            "context.report(node);",
        ),
        ("lib/rule.js:create.Identifier", "### lib/rule.js:L7-9 of 12 create > Id", "report(node)"),
        (
            "lib/rule.js:report",
            "### lib/rule.js:L3-5 of 12 create > report\n",
            "context.report(node);",
        ),
        (
            "lib/rule.js:module.exports",
            "### lib/rule.js:L1-12 of 12 module.exports\n",
            "module.exports = {",
        ),
        (
            "lib/rule.test.js:it fixes all",
            "### lib/rule.test.js:L2-4 of 5 describe rule >",
            "run(1)",
        ),
        ("lib/load.ts:load", "### lib/load.ts:L1-3 of 3\n", "makeLoad(parse);"),
        ("load", "### lib/load.ts:L1-3 of 3\n", "makeLoad(parse);"),
        ("lib/index.js:default", "### lib/index.js:L2-4 of 4\n", "run,\n};\n"),
        ("lib/index.js:export", "### lib/index.js:L1-1 of 4\n", 'from "./a"'),
        ("useCart", "### lib/useCart.ts:L1-3 of 3\n", "return 1;"),
        ("Column", "### db/operators.py:L11-", "return chosen.strip()"),
        ("db/other.py", "### db/other.py:L1-3 of ", "return 2"),
        ("other.py", "### db/other.py:L1-3 of ", "return 2"),
        ("db/long.py:L120-122", "### db/long.py:L120-122 of ", "step_"),
        ("db/long.py:120-122", "### db/long.py:L120-122 of ", "step_"),
        ("db/long.py#L121", "### db/long.py:L121-121 of ", "step_30"),
        ("long.py:590-9000", "### db/long.py:L590-", "return 149"),
    ],
)
def test_every_form_of_a_name_is_sent_whole(name: str, header: str, holds: str) -> None:
    answer = ask(name)
    assert answer.text.startswith(header)
    assert holds in answer.text
    assert answer.notes == ()


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("Column.lable", "not found: Column.lable (nearest: Column.label)"),
        ("db/operator.py", "not found: db/operator.py (nearest: db/operators.py"),
        ("sql/other.py", "not found: sql/other.py (nearest: db/other.py"),
        ("db/other.py:Row.lable", "not found: db/other.py:Row.lable (nearest: Row.label"),
        ("db/other.py:L40-50", "db/other.py has only 3 lines"),
        ("twin", "twin is defined 6 times: many.py:2, many.py:6"),
        ("db/long.py", "db/long.py has 600 lines, too many to show whole"),
        ("db/long.py", "it defines step_0 L1-4"),
        ("db", "db is a folder: db/long.py, db/operators.py, db/other.py"),
        (".env", ".env is not shown: such files hold secrets"),
        (".env:1-2", ".env is not shown: such files hold secrets"),
        (".env:KEY", ".env is not shown: such files hold secrets"),
    ],
)
def test_what_cannot_be_sent_is_answered(name: str, note: str) -> None:
    ranked = Chunk("db/operators.py", 1, 2, "Column.label", ChunkKind.METHOD, "", "", "python")
    answer = ask(name, ranking=Ranking((ScoredChunk(ranked, 1.0),), (), 1))
    assert answer.text == ""
    assert note in answer.notes[0]


def test_a_class_is_shown_without_bodies_before_it_is_cut() -> None:
    answer = ask("Column", budget=300)
    assert "def label(self, name):" in answer.text
    assert "Sentence" not in answer.text
    assert "shortened to fit: Column" in answer.notes[0]
    assert answer.tokens <= 300


def test_what_does_not_fit_is_named_with_its_size() -> None:
    answer = ask("db/other.py", "db/long.py:1-300", budget=200)
    assert "class Row" in answer.text
    assert "step_0" not in answer.text
    assert answer.notes[0].startswith("did not fit (")
    assert answer.notes[0].endswith("db/long.py:L1-300")


def test_of_the_first_request_the_lines_that_fit_are_sent() -> None:
    answer = ask("db/long.py:1-300", budget=400)
    assert "def step_0" in answer.text
    assert "only the lines up to" in answer.notes[0]
    assert 200 < answer.tokens <= 400


def test_code_that_was_shown_is_not_sent_again() -> None:
    answer = ask("db/other.py", "PRECEDENCE", shown={"db/other.py": [(1, 3)]})
    assert "class Row" not in answer.text
    assert answer.notes == ("shown already: db/other.py:L1-3",)
    assert answer.shown == {"db/operators.py": ((4, 8),)}


def test_what_lies_within_other_code_is_sent_once() -> None:
    for names in (("step_30", "db/long.py:110-140"), ("db/long.py:110-140", "step_30")):
        answer = ask(*names)
        assert answer.text == ask("db/long.py:110-140").text
        assert answer.notes == ()
    tight = ask("step_120", "db/long.py:1-500", budget=300)
    assert tight.text.startswith("### db/long.py:L481-482")


def test_of_lines_that_were_partly_shown_the_others_are_sent() -> None:
    shown = {"db/long.py": [(1, 3), (121, 180)]}
    answer = ask("db/long.py:101-200", shown=shown)
    assert answer.shown == {"db/long.py": ((101, 120), (181, 200))}
    assert answer.notes == ("shown already: L121-180 of db/long.py:L101-200",)
    assert "def step_30" not in answer.text
    assert answer.text.count("def step_") == 10


def test_a_long_file_is_answered_with_its_likeliest_parts_and_its_definitions() -> None:
    snapshot = MemorySnapshot(FILES)
    chunks = TreeSitterChunker()(snapshot.files["db/long.py"], LONG)
    ranked = [c for c in chunks if c.symbol in ("step_77", "step_3")]
    scored = tuple(ScoredChunk(chunk, -n) for n, chunk in enumerate(reversed(ranked)))
    answer = ask("db/long.py", ranking=Ranking(scored, (), len(chunks)))
    assert [line for line in answer.text.split("\n") if "return" in line] == [
        "    return 77",
        "    return 3",
    ]
    assert "too many to show whole: name symbols or lines" in answer.notes[0]
