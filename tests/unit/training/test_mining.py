from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.conftest import run_git
from training.mining import MiningLimits, main, mine
from training.pairs import Pair, pairs_path, read_manifest, read_pairs

REPO = "acme/shop"
BASKET = '''\
"""Baskets."""


class Basket:
    """Things to buy."""

    limit = 3

    def __init__(self):
        self.items = []

    def total_price(self):
        return sum(self.items) - 1

    def clear(self):
        self.items = []


def parse_price(text):
    return float(text)
'''
FILES = {
    "shop/basket.py": BASKET,
    "shop/broken.py": "def ok():\n    return 1\n\n\ndef bad(:\n    pass\n",
    "shop/old.py": "def gone():\n    return 1\n",
    "shop/größe.py": "def weigh():\n    return 1\n",
    "tests/test_basket.py": "def test_nothing():\n    pass\n",
    "shop/test/helper.py": "def helper():\n    return 1\n",
    "docs/conf.py": "def setup(app):\n    return 1\n",
    "shop/_vendor/other.py": "def vendored():\n    return 1\n",
    "README.md": "A shop\n",
}


class Project:
    """A repository under construction, in the folder that mining is given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / REPO.replace("/", "+")
        self.root.mkdir(parents=True)
        run_git(self.root, "init", "-q")
        self.commit("base of everything in the shop", FILES)

    def commit(self, message: str, files: Mapping[str, str | None]) -> str:
        for path, text in files.items():
            file = self.root / path
            if text is None:
                file.unlink()
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text.encode())
        run_git(self.root, "add", "-A")
        run_git(self.root, "commit", "-q", "--allow-empty", "-m", message)
        return run_git(self.root, "rev-parse", "HEAD").strip()

    def change(self, message: str, old: str, new: str, path: str = "shop/basket.py") -> str:
        return self.commit(message, {path: self.text(path).replace(old, new)})

    def merge(self, message: str, commits: Callable[[], object]) -> str:
        run_git(self.root, "checkout", "-q", "-b", "side")
        commits()
        run_git(self.root, "checkout", "-q", "main")
        run_git(self.root, "merge", "-q", "--no-ff", "-m", message, "side")
        run_git(self.root, "branch", "-q", "-D", "side")
        return run_git(self.root, "rev-parse", "HEAD").strip()

    def text(self, path: str) -> str:
        return (self.root / path).read_text("utf-8")

    def mine(self, limits: MiningLimits | None = None) -> list[Pair]:
        output = self.folder.parent / "out"
        mine(self.folder, [REPO], output, limits or MiningLimits())
        return list(read_pairs(output))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "repos")


def names(pair: Pair) -> list[str]:
    return [function.name for function in pair.functions]


def test_a_pair_has_the_old_function_the_message_the_tests_and_the_rest_of_the_file(
    project: Project,
) -> None:
    parent = run_git(project.root, "rev-parse", "HEAD").strip()
    added = "def test_total():\n    assert Basket().total_price() == 0"
    commit = project.commit(
        "Fix total_price of an empty basket (#12)\n\nIt was -1.\n\nSigned-off-by: A <a@b.c>",
        {
            "shop/basket.py": BASKET.replace(" - 1", ""),
            "tests/test_basket.py": f"def test_nothing():\n    pass\n\n\n{added}\n",
            "README.md": "A good shop\n",
        },
    )
    (pair,) = project.mine()
    assert pair.model_dump(exclude={"negatives"}) == {
        "repo": REPO,
        "commit": commit,
        "parent": parent,
        "subject": "Fix total_price of an empty basket",
        "body": "It was -1.",
        "fix": True,
        "test_added": added,
        "names_in_message": ("total_price",),
        "functions": (
            {
                "path": "shop/basket.py",
                "symbol": "Basket.total_price",
                "kind": "method",
                "start": 12,
                "end": 14,
                "text": "    def total_price(self):\n        return sum(self.items) - 1\n",
            },
        ),
    }
    assert pair.query == "Fix total_price of an empty basket\n\nIt was -1."
    assert [negative.symbol for negative in pair.negatives] == [
        "Basket",
        "Basket.__init__",
        "Basket.clear",
        "parse_price",
    ]


def test_a_pull_request_is_one_change_with_its_title(project: Project) -> None:
    def work() -> None:
        project.change("wip", "float(text)", "float(text.strip())")
        project.change("more wip", " - 1", "")

    project.merge(
        "Merge pull request #7 from acme/side\n\nPrices may have blanks around them", work
    )
    (pair,) = project.mine()
    assert pair.subject == "Prices may have blanks around them"
    assert names(pair) == ["shop/basket.py:Basket.total_price", "shop/basket.py:parse_price"]


def test_a_constructor_counts_as_its_class(project: Project) -> None:
    project.commit(
        "Baskets are limited in their number of items",
        {
            "shop/basket.py": BASKET.replace("limit = 3", "limit = 4").replace(
                "self.items = []\n\n    def total", "self.items = list()\n\n    def total"
            )
        },
    )
    (pair,) = project.mine()
    assert [function.symbol for function in pair.functions] == ["Basket", "Basket.__init__"]
    assert {function.name for function in pair.functions} == {"shop/basket.py:Basket"}
    assert {function.leaf for function in pair.functions} == {"Basket"}
    assert pair.names_in_message == ()
    assert "Basket.__init__" not in [negative.symbol for negative in pair.negatives]


MESSAGE = "Make the thing do what people expect"


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(
            {"shop/basket.py": f"{BASKET}\n\ndef fresh():\n    return 1\n"}, id="new only"
        ),
        pytest.param({"shop/basket.py": BASKET.replace('"""Baskets."""', "")}, id="module level"),
        pytest.param({"shop/old.py": None}, id="deleted file"),
        pytest.param(
            {"shop/old.py": None, "shop/basket.py": BASKET.replace(" - 1", "")},
            id="with a deletion",
        ),
        pytest.param({"tests/test_basket.py": "def test_nothing():\n    assert 1\n"}, id="tests"),
        pytest.param({"shop/test/helper.py": "def helper():\n    return 2\n"}, id="inner tests"),
        pytest.param({"docs/conf.py": "def setup(app):\n    return 2\n"}, id="docs"),
        pytest.param({"shop/_vendor/other.py": "def vendored():\n    return 2\n"}, id="vendored"),
        pytest.param({"shop/fresh.py": "def fresh():\n    return 1\n"}, id="new file"),
        pytest.param({"README.md": "A better shop\n"}, id="no python"),
    ],
)
def test_dropped(project: Project, files: Mapping[str, str | None]) -> None:
    project.commit(MESSAGE, files)
    assert project.mine() == []


def test_too_many_functions_or_files_are_a_sweep(project: Project) -> None:
    many = "".join(f"def f{n}():\n    return 1\n\n\n" for n in range(9))
    project.commit("many functions to be changed later on", {"shop/many.py": many})
    project.commit(
        "Return two all over the place", {"shop/many.py": many.replace("return 1", "return 2")}
    )
    eight = many.replace("return 1", "return 3", 8).replace("return 1", "return 2")
    project.commit("Return three from eight of them", {"shop/many.py": eight})
    few = [f"shop/few{n}.py" for n in range(7)]
    project.commit(
        "seven files that belong together", dict.fromkeys(few, "def f():\n    return 1\n")
    )
    project.commit("Return two in seven files", dict.fromkeys(few, "def f():\n    return 2\n"))
    project.commit("Return three in six files", dict.fromkeys(few[:6], "def f():\n    return 3\n"))
    assert [pair.subject for pair in project.mine()] == [
        "Return three in six files",
        "Return three from eight of them",
    ]


def test_negatives_are_at_most_twelve_and_the_same_every_time(project: Project) -> None:
    many = "".join(f"def f{n}():\n    return {n}\n\n\n" for n in range(40))
    project.commit("many functions to be changed later on", {"shop/many.py": many})
    project.commit(MESSAGE, {"shop/many.py": many.replace("return 7\n", "return 0\n")})
    (first,) = project.mine()
    pairs_path(project.folder.parent / "out", REPO).unlink()
    (second,) = project.mine()
    assert first == second
    assert len(first.negatives) == 12
    assert names(first) == ["shop/many.py:f7"]
    assert "f7" not in {negative.symbol for negative in first.negatives}


# ------------------------------------------------------------------------------------- the command


def test_the_command_skips_what_is_done_and_mines_again_what_moved_on(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    output = project.folder.parent / "out"
    arguments = ["--repos", str(project.folder), "--output", str(output)]
    first = project.change("Fix the total that is one too low", " - 1", "")
    assert main(arguments) == 0
    assert f"{REPO}: 1 pairs of 1 commits" not in capsys.readouterr().out
    file = pairs_path(output, REPO)
    file.write_bytes(b"")  # to be seen if it is made again
    assert main(arguments) == 0
    assert file.read_bytes() == b""
    # The limit was not reached: a higher one would find the same.
    assert main([*arguments, "--pairs", "5000"]) == 0
    assert file.read_bytes() == b""
    second = project.change("Baskets hold one item more now", "limit = 3", "limit = 4")
    assert main(arguments) == 0
    assert [pair.commit for pair in read_pairs(output)] == [second, first]
    manifest = read_manifest(output)
    assert manifest is not None
    assert [
        (p.repo, p.tip, p.first, p.last, p.seen, p.eligible, p.kept, p.fixes, p.functions, p.named)
        for p in manifest.projects
    ] == [(REPO, second, first, second, 3, 2, 2, 1, 2, 0)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--projects", "django/django"], "django/django: not to be trained on"),
        (["--projects", "fork/Scrapy"], "fork/Scrapy: not to be trained on (held out"),
        (["--projects", "acme/absent"], "acme/absent: no repository below"),
        (["--pairs", "0"], "give 1 or more"),
    ],
)
def test_the_command_refuses(
    project: Project, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    output = project.folder.parent / "out"
    code = main(["--repos", str(project.folder), "--output", str(output), *arguments])
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert said in captured.err
    assert not output.exists()
