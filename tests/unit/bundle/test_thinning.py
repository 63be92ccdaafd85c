"""A thinned source does the same, and says less about it."""

from __future__ import annotations

import ast

import pytest

from agent.bundling.thinning import thinned
from tests.conftest import ROOT

SOURCE = '''"""First.

Second.
"""
# A comment.
x = """# no comment
# nor this
"""  # at the end of a line


class A:
    """One line."""

    # Another.
    def f(self):
        r"""It's raw.

        More.
        """
        return "#"
'''
THIN = '''\'First.\'
x = """# no comment
# nor this
"""  # at the end of a line


class A:
    """One line."""

    def f(self):
        "It's raw."
        return "#"
'''


def test_comments_go_and_docstrings_become_short() -> None:
    assert thinned(SOURCE) == THIN


@pytest.mark.parametrize("folder", ["agent", "sandbox"])
def test_our_own_sources_do_the_same(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*.py")):
        source = path.read_text("utf-8")
        thin = thinned(source)
        assert _without_docstrings(thin) == _without_docstrings(source), path
        assert len(thin) <= len(source)


def _without_docstrings(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""
    return ast.dump(tree)
