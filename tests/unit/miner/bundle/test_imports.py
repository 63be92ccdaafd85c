"""Which modules are carried: imports followed on a small tree of modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.miner.bundle.imports import Closure, close, own_modules

Tree = Callable[[Mapping[str, str]], Mapping[str, Path]]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    def make(files: Mapping[str, str]) -> Mapping[str, Path]:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return own_modules(tmp_path)

    return make


def names(closure: Closure) -> tuple[list[str], list[str]]:
    return list(closure.modules), sorted(closure.foreign)


def test_imports_are_followed_with_their_packages(tree: Tree) -> None:
    modules = tree(
        {
            "agent/__init__.py": "",
            "agent/main.py": "from agent.part import one\nimport sandbox.box, os, numpy.linalg",
            "agent/part/__init__.py": "import httpx",
            "agent/part/one.py": "",
            "agent/part/two.py": "import torch",
            "sandbox/__init__.py": "",
            "sandbox/box.py": "def run():\n    from pydantic import BaseModel\n",
            "sandbox/other.py": "",
        }
    )
    closure = close(modules, ["agent.main"])
    assert names(closure) == (
        ["agent", "agent.main", "agent.part", "agent.part.one", "sandbox", "sandbox.box"],
        ["httpx", "numpy", "pydantic"],
    )
    assert all(closure.modules[name] == modules[name] for name in closure.modules)


def test_what_only_type_checkers_read_does_not_count(tree: Tree) -> None:
    modules = tree(
        {
            "agent/__init__.py": "",
            "agent/main.py": (
                "from typing import TYPE_CHECKING\n"
                "if TYPE_CHECKING:\n    import torch\n    import agent.typed\n"
                "else:\n    import agent.real\n"
            ),
            "agent/typed.py": "",
            "agent/real.py": "",
        }
    )
    assert names(close(modules, ["agent.main"])) == (["agent", "agent.main", "agent.real"], [])


def test_a_module_named_by_a_string_counts(tree: Tree) -> None:
    modules = tree(
        {
            "agent/__init__.py": "",
            "agent/main.py": (
                'A = ["-m", "agent.worker"]\nB = "see agent.other"\nC = "tree_x"\nD = f"tree_z.{A}"'
            ),
            "agent/worker.py": "",
            "agent/other.py": "",
        }
    )
    assert names(close(modules, ["agent.main"], known=["tree_x", "tree_y", "tree_z"])) == (
        ["agent", "agent.main", "agent.worker"],
        ["tree_x", "tree_z"],
    )


def test_what_is_left_out_brings_nothing_with_it(tree: Tree) -> None:
    modules = tree(
        {
            "agent/__init__.py": "",
            "agent/main.py": "import agent.train.ranker, agent.trainings",
            "agent/train/__init__.py": "import torch",
            "agent/train/ranker.py": "import lightgbm",
            "agent/trainings.py": "",
        }
    )
    closure = close(modules, ["agent.main"], leave_out=["agent.train"])
    assert names(closure) == (["agent", "agent.main", "agent.trainings"], [])
    assert closure.left_out == ("agent.train", "agent.train.ranker")


def test_of_a_face_the_names_in_use_are_carried(tree: Tree) -> None:
    modules = tree(
        {
            "agent/__init__.py": "",
            "agent/main.py": "from agent.part import One, Left",
            "agent/part/__init__.py": (
                '"""A part."""\n\n'
                "from agent.part.left import Left\n"
                "from agent.part.one import First as One\n"
                "from agent.part.two import Two\n"
                '__all__ = ["Left", "One", "Two"]'
            ),
            "agent/part/left.py": "import torch",
            "agent/part/one.py": "import httpx",
            "agent/part/two.py": "import numpy",
        }
    )
    closure = close(modules, ["agent.main"], leave_out=["agent.part.left"])
    assert names(closure) == (["agent", "agent.main", "agent.part", "agent.part.one"], ["httpx"])
    assert closure.left_out == ("agent.part.left",)
    face = '"""A part."""\nfrom agent.part.one import First as One\n'
    assert closure.faces == {"agent.part": face}


def test_a_face_that_is_imported_whole_is_carried_whole(tree: Tree) -> None:
    modules = tree(
        {
            "agent/__init__.py": "",
            "agent/main.py": "from agent import part",
            "agent/part/__init__.py": "from agent.part.one import One",
            "agent/part/one.py": "",
        }
    )
    closure = close(modules, ["agent.main"])
    assert names(closure) == (["agent", "agent.main", "agent.part", "agent.part.one"], [])
    assert closure.faces == {"agent.part": "from agent.part.one import One\n"}
