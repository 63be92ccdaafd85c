"""What can be read off a patch, and which of its files take part in which run."""

from __future__ import annotations

import pytest

from agent.types import FileChange
from agent.validation.judging.tricks import find_hiding, find_tricks
from agent.validation.running.held import share_out
from tests.support.validation import edit

PLAIN = "class A:\n    def __eq__(self, other):\n        return self.x == other.x\n"


def tricks(before: str | None, after: str, *project: str) -> tuple[str, ...]:
    return find_tricks([edit("m.py", before, after)], project)


@pytest.mark.parametrize(
    "after",
    [
        "class A:\n    def __eq__(self, other):\n        return True\n",
        'class A:\n    def __eq__(self, other):\n        """Same."""\n        return 1\n',
        "class A:\n    __eq__ = lambda self, other: True\n",
        "def f():\n    class A(str):\n        __ge__ = lambda self, other: 'yes'\n",
    ],
)
def test_comparisons_that_hold_for_everything(after: str) -> None:
    (found,) = tricks(PLAIN, after)
    assert found.startswith("m.py: A.__")
    assert tricks(after, after + "# more\n") == ()


@pytest.mark.parametrize(
    "after",
    [PLAIN, "class A:\n    def __eq__(self, o):\n        return NotImplemented\n", "x = (\n", "é"],
)
def test_honest_code_is_left_alone(after: str) -> None:
    assert tricks(None, after) == ()


@pytest.mark.parametrize(
    "code",
    [
        "if 'PYTEST_CURRENT_TEST' in os.environ: pass\n",
        'if "pytest" in sys.modules: pass\n',
        "sys.modules.get('pytest')\n",
        "from _pytest import runner\n",
    ],
)
def test_code_that_asks_for_its_tests(code: str) -> None:
    (found,) = tricks("x = 1\n", f"x = 1\n{code}")
    assert found.startswith("m.py: the code asks for what tests it (")
    assert tricks(f"{code}x = 1\n", f"x = 2\n{code}") == ()
    assert tricks("x = 1\n", code, "import _pytest\n") == ()  # the project is about tests


def test_other_files_and_deleted_ones_are_passed_over() -> None:
    changes = [edit("m.py", "import _pytest\n", None), edit("doc.md", None, "import _pytest\n")]
    assert find_tricks(changes, ()) == ()


@pytest.mark.parametrize("text", ["collect_ignore = ['a']", "addopts = --deselect=a --ignore b"])
def test_configuration_that_hides_tests(text: str) -> None:
    (found,) = find_hiding([edit("conftest.py", "x = 1\n", text)])
    assert found.startswith("conftest.py: takes tests out of the run (")
    assert find_hiding([edit("conftest.py", text, text + "\n")]) == ()


def share_of(change: FileChange, *known: str, roots: tuple[str, ...] = (".",)) -> str:
    shares = share_out([change], known.__contains__, roots)
    return next(n for n in ("source", "tests", "held", "never") if getattr(shares, n))


@pytest.mark.parametrize(
    ("path", "share"),
    [
        ("pkg/mod.py", "source"),
        ("README.md", "source"),
        ("setup.py", "source"),
        ("pkg/json.py", "source"),
        ("tests/test_a.py", "tests"),
        ("tests/data/x.json", "tests"),
        ("conftest.py", "held"),
        ("sub/conftest.py", "held"),
        ("pytest.ini", "held"),
        ("pyproject.toml", "held"),
        ("setup.cfg", "held"),
        ("tox.ini", "held"),
        ("sitecustomize.py", "never"),
        ("src/usercustomize/__init__.py", "never"),
        ("a/b.pth", "never"),
        ("m.cpython-311.pyc", "never"),
        ("x.egg-info/entry_points.txt", "never"),
        ("x-1.dist-info/METADATA", "never"),
        ("json.py", "never"),
        ("json/__init__.py", "never"),
        ("src/pytest.py", "never"),
        ("_pytest/runner.py", "never"),
        ("patchshot_pytest.py", "never"),
        ("hashlib.cpython-311-x86_64-linux-gnu.so", "never"),
    ],
)
def test_where_a_new_file_takes_part(path: str, share: str) -> None:
    assert share_of(edit(path, None, "x"), roots=(".", "src")) == share


def test_modules_that_the_project_has_already_are_its_source() -> None:
    assert share_of(edit("src/_pytest/runner.py", "x", "y"), roots=("src",)) == "source"
    known = ("src/_pytest/__init__.py",)
    assert share_of(edit("src/_pytest/new.py", None, "y"), *known, roots=("src",)) == "source"
    assert share_of(edit("json.py", "x", None)) == "source"
