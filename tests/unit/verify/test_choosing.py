"""Which test files are run, which history has a say, and what the model is shown of them."""

from __future__ import annotations

import json
import random
from pathlib import Path, PurePosixPath

import pytest

from agent.types import Chunk, ChunkKind, Problem, Ranking, ScoredChunk, ScoredFile, SelectedTest
from agent.verify.choosing import (
    TestFiles,
    TestHints,
    accepted_by,
    changed_symbols,
    changed_together,
    choose_tests,
    find_test_hints,
    select_tests,
)
from agent.verify.path_rules import (
    free_path,
    is_test_file,
    rename_class,
    unsafe,
)
from agent.verify.runners.base import Suite
from tests.support.fakes import MemorySnapshot
from tests.support.histories import commit, git
from tests.support.tokens import ApproximateCounter
from tests.support.validation import edit

# --------------------------------------------------------------------------------- selection

BEFORE = """class Parser:
    def parse(self):
        return 1

    def other(self):
        return 2
"""
AFTER = BEFORE.replace("return 1", "return 3")

FILES = {
    "src/pkg/__init__.py": "",
    "src/pkg/parser.py": BEFORE,
    "src/pkg/util.py": "",
    "tests/conftest.py": "from pkg.parser import Parser\n",
    "tests/test_parser.py": "",
    "tests/test_parser_errors.py": "",
    "tests/test_api.py": "from pkg.parser import Parser\n",
    "tests/test_style.py": "import pkg\n\nParser().parse()\n",
    "tests/test_far.py": "import json\n",
    "tests/helper.py": "from pkg.parser import Parser\n",
    "vendor/other/test_parser.py": "from pkg.parser import Parser\n",
}


def selected(
    files: dict[str, str] = FILES, problem: str = "It is broken", limit: int = 12
) -> list[SelectedTest]:
    change = edit("src/pkg/parser.py", BEFORE, AFTER)
    return list(select_tests(TestFiles(MemorySnapshot(files)), [change], problem, limit))


def test_the_order_and_the_reasons() -> None:
    assert selected() == [
        SelectedTest("tests/test_parser.py", "named after src/pkg/parser.py"),
        SelectedTest("tests/test_parser_errors.py", "named after src/pkg/parser.py"),
        SelectedTest("tests/test_style.py", "mentions parse; imports the package of pkg.parser"),
        SelectedTest("tests/test_api.py", "imports src/pkg/parser.py; mentions Parser"),
    ]


def test_the_issue_can_name_a_test() -> None:
    found = selected(problem="See tests/test_far.py::test_x, which fails.")
    assert found[0] == SelectedTest("tests/test_far.py", "named by the issue")


def test_a_test_that_the_patch_edits_comes_first() -> None:
    changes = [
        edit("src/pkg/parser.py", BEFORE, AFTER),
        edit("tests/test_far.py", "import json\n", "import json\n\n"),
    ]
    found = select_tests(TestFiles(MemorySnapshot(FILES)), changes, "")
    assert found[0] == SelectedTest("tests/test_far.py", "edited by the patch")


def test_the_order_does_not_depend_on_that_of_the_files() -> None:
    expected = selected()
    names = list(FILES)
    for seed in range(5):
        random.Random(seed).shuffle(names)
        assert selected({name: FILES[name] for name in names}) == expected


def test_where_nothing_is_tied_the_nearest_are_taken_and_strangers_never() -> None:
    files = {
        "pkg/data/table.csv": "",
        "pkg/data/test_near.py": "",
        "elsewhere/test_far.py": "",
    }
    found = select_tests(
        TestFiles(MemorySnapshot(files)), [edit("pkg/data/table.csv", "a", "b")], ""
    )
    assert [test.path for test in found] == ["pkg/data/test_near.py"]


def test_rare_words_weigh_more_than_common_ones() -> None:
    files = {"mod.py": BEFORE} | {f"t/test_{i}.py": "Parser\n" for i in range(20)}
    files["t/test_7.py"] = "Parser parse\n"
    found = select_tests(TestFiles(MemorySnapshot(files)), [edit("mod.py", BEFORE, AFTER)], "")
    assert found[0].path == "t/test_7.py"


def test_changed_symbols_are_those_around_changed_lines() -> None:
    assert changed_symbols([edit("a.py", BEFORE, AFTER)]) == {"Parser", "parse"}
    assert changed_symbols([edit("a.py", BEFORE, None)]) == {"Parser", "parse", "other"}
    assert changed_symbols([edit("a.py", "x = 1\n" + BEFORE, "x = 2\n" + BEFORE)]) == set()
    init = "class A:\n    def __init__(self):\n        self.a = 1\n"
    assert changed_symbols([edit("a.py", init, init.replace("1", "2"))]) == {"A"}
    assert changed_symbols([edit("a.txt", BEFORE, AFTER)]) == set()
    old = "def f():\n    print 1\n\ndef g():\n    print 1\n"
    assert changed_symbols([edit("a.py", old, old[:-2] + "2\n")]) == {"g"}


def test_files_that_changed_together_are_tied() -> None:
    together = {"tests/test_far.py": 0.9, "tests/helper.py": 0.9}
    change = edit("src/pkg/util.py", "", "x = 1\n")
    found = select_tests(TestFiles(MemorySnapshot(FILES)), [change], "", together=together)
    assert found[0] == SelectedTest("tests/test_far.py", "changed together with it before")


@pytest.mark.parametrize(
    ("source", "before", "after", "test", "text"),
    [
        (
            "src/sum.ts",
            "export function add(a) {\n  return a;\n}\n",
            "export function add(a) {\n  return 1;\n}\n",
            "src/__tests__/add.ts",
            "import { add } from '../sum';\n",
        ),
        (
            "sum/sum.go",
            "func (s Sum) Add() int {\n\treturn 1\n}\n",
            "func (s Sum) Add() int {\n\treturn 2\n}\n",
            "sum/sum_test.go",
            "func TestX(t *testing.T) { Add() }\n",
        ),
        (
            "src/sum.rs",
            "pub fn add() -> i32 {\n    1\n}\n",
            "pub fn add() -> i32 {\n    2\n}\n",
            "tests/whole.rs",
            "use x::sum::add;\n",
        ),
        (
            "src/main/java/o/Sum.java",
            "class Sum {\n  int add() {\n    return 1;\n  }\n}\n",
            "class Sum {\n  int add() {\n    return 2;\n  }\n}\n",
            "src/test/java/o/SumTest.java",
            "import o.Sum;\n",
        ),
    ],
)
def test_other_languages_are_chosen_by_the_same_ties(
    source: str, before: str, after: str, test: str, text: str
) -> None:
    files = {source: before, test: text, "README.md": ""}
    change = edit(source, before, after)
    assert "add" in {name.lower() for name in changed_symbols([change])}
    found = select_tests(TestFiles(MemorySnapshot(files)), [change], "")
    assert [one.path for one in found] == [test]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tests/test_a.py", True),
        ("tests/conftest.py", False),
        ("a/x_test.go", True),
        ("web/a.test.tsx", True),
        ("web/__tests__/a.js", True),
        ("test/a.js", True),
        ("test/fixtures/a.js", False),
        ("src/latest.js", False),
        ("tests/it.rs", True),
        ("tests/common/mod.rs", False),
        ("src/parser/tests.rs", True),
        ("src/lib.rs", False),
        ("src/test/java/a/FooTest.java", True),
        ("src/main/java/a/Latest.java", False),
        ("src/test/java/a/Helper.java", False),
    ],
)
def test_which_files_hold_tests(path: str, expected: bool) -> None:
    assert is_test_file(path) is expected


def many_tests(count: int) -> str:
    return "from pkg.parser import Parser\n" + "".join(
        f"def test_{number}(): pass  # {'x' * 500}\n" for number in range(count)
    )


def test_within_the_time_the_best_first_and_small_ones_after_a_large() -> None:
    files = {
        "pkg/parser.py": BEFORE,
        "t/test_parser.py": many_tests(100),
        "t/test_large.py": many_tests(2_000),
        "t/test_small.py": many_tests(2),
    }
    snapshot = MemorySnapshot(files)
    change = edit("pkg/parser.py", BEFORE, AFTER)

    def chosen(seconds: float) -> list[str]:
        return [t.path for t in select_tests(TestFiles(snapshot), [change], "", seconds=seconds)]

    assert len(chosen(10_000)) == 3
    assert chosen(60) == ["t/test_parser.py", "t/test_small.py"]
    assert chosen(1) == ["t/test_parser.py"]


def test_a_test_that_imports_edited_data_of_tests_is_chosen() -> None:
    data = "test/fixtures/rows.json"
    files = {
        "test/a.js": "const rows = require('./fixtures/rows.json')\n",
        "test/b.js": "",
        data: "1",
    }
    found = select_tests(TestFiles(MemorySnapshot(files)), [edit(data, "1", "2")], "")
    assert found[0] == SelectedTest("test/a.js", f"mentions fixtures; imports {data}; near {data}")


@pytest.mark.parametrize(
    ("path", "second"),
    [
        ("t/test_x.py", "t/test_x_2.py"),
        ("test/x.js", "test/x_2.js"),
        ("sum/x_test.go", "sum/x_2_test.go"),
        ("tests/x.rs", "tests/x_2.rs"),
        ("src/test/java/a/FooTest.java", "src/test/java/a/Foo_2Test.java"),
        ("src/test/java/a/TestFoo.java", "src/test/java/a/TestFoo_2.java"),
    ],
)
def test_a_test_under_another_name_is_still_one(path: str, second: str) -> None:
    assert unsafe(path) is None
    assert free_path(path, {path}.__contains__) == second
    assert is_test_file(path) is is_test_file(second)


def test_a_java_class_is_renamed_with_its_file() -> None:
    content = b'class FooTest { FooTest again; String name = "MyFooTest"; }'
    renamed = rename_class(content, "a/FooTest.java", "a/Foo_2Test.java")
    assert renamed == b'class Foo_2Test { Foo_2Test again; String name = "MyFooTest"; }'
    assert rename_class(b"x", "x.js", "y.js") == b"x"


@pytest.mark.parametrize(
    "path",
    ["x.js", "src/x.go", "src/lib.rs", "a/Foo.java", "x.sh", "test/../x.test.js", "/x.test.js",
     "web\\x.test.js", ".git/x.test.js", "jest.config.test.js\n"],
)  # fmt: skip
def test_what_is_no_test_of_a_language_that_is_run_is_not_taken(path: str) -> None:
    assert unsafe(path)


# ----------------------------------------------------------------------------------- history

SUMS = {
    "pkg/sums.py": "def add(a, b):\n    return a - b\n",
    "tests/test_far.py": "x = 1\n",
    "tests/test_sums.py": "from pkg.sums import add\n" + "def test_add(): pass\n" * 9,
    "tests/test_use.py": "from pkg.sums import add\n",
    "web/sums.test.js": "add\n",
}
SUM_CHANGE = edit("pkg/sums.py", SUMS["pkg/sums.py"], "def add(a, b):\n    return a + b\n")


def snapshot_of(folder: Path) -> MemorySnapshot:
    git(folder, "init", "-q")
    for _ in range(4):
        base = commit(folder, "pkg/sums.py", "tests/test_far.py")
    snapshot = MemorySnapshot(SUMS)
    snapshot.root, snapshot.commit = folder, base
    return snapshot


def test_the_history_has_a_say_and_only_what_the_suite_runs_is_chosen(tmp_path: Path) -> None:
    snapshot = snapshot_of(tmp_path)
    files = TestFiles(snapshot, accepted_by(Suite("pytest", ""), snapshot))
    found = choose_tests(files, [SUM_CHANGE], "", 60.0)
    assert [test.path for test in found] == [
        "tests/test_sums.py",
        "tests/test_far.py",
        "tests/test_use.py",
    ]
    assert found[1] == SelectedTest("tests/test_far.py", "changed together with it before")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    return tmp_path


def test_files_of_the_same_commits_are_scored_by_how_regularly(repository: Path) -> None:
    commit(repository, "a.py", "test_a.py", "test_b.py")
    commit(repository, "a.py", "test_a.py")
    commit(repository, "test_b.py", "c.py")
    base = commit(repository, "a.py", "test_a.py", "naïve name.py")
    commit(repository, "a.py", "later.py")
    found = changed_together(repository, base, ("a.py",))
    assert list(found) == sorted(found)
    assert found["test_a.py"] > found["test_b.py"] > 0
    assert "naïve name.py" in found
    assert not {"a.py", "c.py", "later.py"} & set(found)
    assert all(0 < score <= 1 for score in found.values())


def test_a_history_that_cannot_be_read_is_no_trouble(tmp_path: Path) -> None:
    assert changed_together(tmp_path / "none", "1" * 40, ("a.py",)) == {}
    git(tmp_path, "init", "-q")
    assert changed_together(tmp_path, "1" * 40, ("a.py",)) == {}


# ------------------------------------------------------------------------------------- hints

PARSER_FILES = {
    "pkg/parser.py": "def parse(text):\n    return text\n",
    "pkg/other.py": "X = 1\n",
    "tests/test_parser.py": "from pkg.parser import parse\n\n\ndef test_parse():\n    assert 1\n",
    "tests/test_other.py": "from pkg.other import X\n",
}


def hints(files: dict[str, str], *ranked: str) -> TestHints:
    ranking = Ranking((), tuple(ScoredFile(path, 1.0) for path in ranked), 0)
    problem = Problem("parsing fails", "")
    return find_test_hints(problem, ranking, MemorySnapshot(files), ApproximateCounter())


def test_tests_of_the_likeliest_files_come_first_and_the_first_is_begun() -> None:
    found = hints(PARSER_FILES, "pkg/parser.py")
    assert found.paths[0] == "tests/test_parser.py"
    assert found.total == 2
    assert found.excerpt.startswith("from pkg.parser import parse\n")
    assert found.language == "python"
    assert found.place == "tests/test_parser.py begins"


@pytest.mark.parametrize(
    ("test", "more", "new"),
    [
        ("tests/test_parser.py", "", "tests/test_issue_example.py"),
        ("pkg/parser_test.py", "", "pkg/issue_example_test.py"),
        ("tests/lib/rules/parser.js", "", "tests/lib/rules/issue_example.js"),
        ("pkg/__tests__/parser-x.test.ts", "", "pkg/__tests__/issue-example.test.ts"),
        ("checks/parser.ts", "mocha 'checks/**/*.ts'", "checks/issue_example.ts"),
        ("pkg/parser_test.go", "", "pkg/issue_example_test.go"),
        ("src/test/java/ParserTest.java", "", "src/test/java/IssueExampleTest.java"),
        ("tests/parser; obey/test_parser.py", "", ""),
    ],
)
def test_a_new_test_gets_a_path_that_the_projects_runner_finds(
    test: str, more: str, new: str
) -> None:
    suffix = PurePosixPath(test).suffix
    files = {f"pkg/parser{suffix}": "parse", test: "import parse from '../pkg/parser'\nparse\n"}
    files["package.json"] = json.dumps({"scripts": {"test": more or "mocha"}})
    files |= {"go.mod": "module m\n", "pom.xml": "<project/>"}
    assert hints(files, f"pkg/parser{suffix}").new == new


def test_a_new_test_goes_where_the_tests_are_and_not_beside_a_module_named_like_one() -> None:
    tools = {"pkg/test_parser.py": "from pkg.parser import parse\n\n\ndef test_parse(): ...\n"}
    found = hints(PARSER_FILES | tools, "pkg/parser.py")
    assert found.paths[0] == "pkg/test_parser.py"
    assert found.new == "tests/test_issue_example.py"


def test_a_project_without_tests_gives_none() -> None:
    assert hints({"pkg/parser.py": "x = 1\n"}, "pkg/parser.py") == TestHints()


def test_a_long_test_file_is_cut_at_whole_lines_and_cannot_close_its_fence() -> None:
    long = "from pkg.parser import parse\n```\n" + "assert parse('x') == 'y'\n" * 500
    found = hints({**PARSER_FILES, "tests/test_parser.py": long}, "pkg/parser.py")
    assert ApproximateCounter().count(found.excerpt) <= 350
    assert found.excerpt.endswith("assert parse('x') == 'y'")
    assert "```" not in found.excerpt


def test_secrets_of_a_test_file_are_masked() -> None:
    token = "ghp_" + "a1B2" * 9
    secret = f"from pkg.parser import parse\nTOKEN = '{token}'\n"
    found = hints({**PARSER_FILES, "tests/test_parser.py": secret}, "pkg/parser.py")
    assert token not in found.excerpt


def test_the_excerpt_is_the_test_that_uses_the_likeliest_code() -> None:
    tests = (
        "import pkg\n\n\ndef test_first():\n    assert 1\n\n\nclass TestParser:\n"
        "    def test_parse(self):\n        text = ''\n\n        assert pkg.parse(text) == ''\n\n"
        "    def test_last(self):\n        assert 2\n"
    )
    files = {**PARSER_FILES, "tests/test_parser.py": tests}
    blob = "0" * 40
    chunk = Chunk("pkg/parser.py", 1, 2, "parse", ChunkKind.FUNCTION, "", blob, "python")
    ranking = Ranking((ScoredChunk(chunk, 1.0),), (ScoredFile("pkg/parser.py", 1.0),), 1)
    snapshot, counter = MemorySnapshot(files), ApproximateCounter()
    found = find_test_hints(Problem("parsing fails", ""), ranking, snapshot, counter)
    assert found.excerpt == (
        "    def test_parse(self):\n        text = ''\n\n        assert pkg.parse(text) == ''"
    )
    assert found.place == "tests/test_parser.py:L9-12"


def test_a_test_with_text_that_the_issue_quotes_comes_before_one_that_only_uses_the_code() -> None:
    tests = (
        "from pkg import parse\n\n\ndef test_parse():\n    assert parse('') == ''\n\n\n"
        "def test_link():\n    assert parse('x') == '<a href=\"None\">x</a>'\n"
    )
    files = {**PARSER_FILES, "tests/test_parser.py": tests}
    chunk = Chunk("pkg/parser.py", 1, 2, "parse", ChunkKind.FUNCTION, "", "0" * 40, "python")
    ranking = Ranking((ScoredChunk(chunk, 1.0),), (ScoredFile("pkg/parser.py", 1.0),), 1)
    for body in ('It gives:\n\n    <a href="None">x</a>\n', 'It has `<a href="None">x</a>`.'):
        problem = Problem("parsing fails", body)
        found = find_test_hints(problem, ranking, MemorySnapshot(files), ApproximateCounter())
        assert found.place == "tests/test_parser.py:L8-9, with text that the issue quotes"


@pytest.mark.parametrize(
    ("path", "text", "first", "last"),
    [
        (
            "tests/test_parser.py",
            "def test_parse():\n    assert parse(1)\n\n\ndef test_long():\n"
            + "    step()\n" * 60
            + '    assert parse() == "a-b"\n    end()\n\n\ndef test_parse_more():\n    parse()\n',
            "    step()",
            "    end()",
        ),
        (
            "tests/parser.test.js",
            "// Licence\n// Text\nit('x', () => {\n  y();\n});\nit('parses', () => {\n"
            '  expect(parse()).toBe("a-b");\n});\n',
            "it('parses', () => {",
            "});",
        ),
        ("tests/test_parser.py", "# Licence\n#\n\nimport parser\n", *["import parser"] * 2),
    ],
)  # fmt: skip
def test_the_excerpt_has_the_assertion_with_the_literal_of_the_issue(
    path: str, text: str, first: str, last: str
) -> None:
    suffix = path.rpartition(".")[2]
    files = {f"pkg/parser.{suffix}": "function parse() {}\n", path: text}
    source = f"pkg/parser.{suffix}"
    ranking = Ranking((), (ScoredFile(source, 1.0),), 0)
    problem = Problem("parse is wrong", 'It must give `"a-b"`.')
    found = find_test_hints(problem, ranking, MemorySnapshot(files), ApproximateCounter())
    lines = found.excerpt.split("\n")
    assert (lines[0], lines[-1]) == (first, last)
    if '"a-b"' in text:
        assert '"a-b"' in found.excerpt
