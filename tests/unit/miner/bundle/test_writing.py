"""Sources as literals and arrays as text: both come back exactly."""

from __future__ import annotations

import ast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.miner.bundle.writing import as_dict, as_literal, without_comments
from agent.retrieval.weights import (
    MODELS,
    SUFFIX,
    arrays_to_text,
    read_arrays,
    restore,
    text_to_arrays,
    write_arrays,
)
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
        """Add nothing.

        More.
        """
        return "#"


class B:
    r"""It's raw.

    More.
    """
'''
THIN = '''\'First.\'
x = """# no comment
# nor this
"""  # at the end of a line


class A:
 """One line."""

 def f(self):
  return "#"


class B:
 "It's raw."
'''


def test_comments_and_docstrings_go_where_code_is_left() -> None:
    assert without_comments(SOURCE) == THIN


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["agent", "sandbox"])
def test_our_own_sources_do_the_same(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*.py")):
        source = path.read_text("utf-8")
        thin = without_comments(source)
        assert _without_docstrings(thin) == _without_docstrings(source), path
        assert len(thin) <= len(source)


def _without_docstrings(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not _is_text(one)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


# Rich in what ends or changes a literal.
_TEXTS = st.text(st.sampled_from("ab'\"\\\n\r\t{}#ä\u2028\x00\x0c")) | st.text()


@given(_TEXTS)
def test_a_literal_says_the_text(text: str) -> None:
    assert ast.literal_eval(as_literal(text)) == text


def test_a_source_stays_readable() -> None:
    source = '"""Doc."""\n\nPATTERN = r"\\d+\\n"\n'
    assert as_literal(source) == f"r'''{source}'''"
    with_both = "'''a'''\n" + source
    assert as_literal(with_both).splitlines()[1] == repr("'''a'''\n")


@given(st.dictionaries(st.text("abc/._", min_size=1), _TEXTS, max_size=4))
def test_a_dict_keeps_its_texts_and_their_order(texts: dict[str, str]) -> None:
    namespace = ast.parse(as_dict("FILES", texts))
    assignment = namespace.body[0]
    assert isinstance(assignment, ast.Assign)
    assert list(ast.literal_eval(assignment.value).items()) == list(texts.items())


def test_the_shipped_ranker_survives_as_text() -> None:
    data = (MODELS / "ranker.npz").read_bytes()
    before, after = read_arrays(data), read_arrays(text_to_arrays(arrays_to_text(data)))
    assert before is not None
    assert after is not None
    assert before.keys() == after.keys()
    for name, array in before.items():
        assert (array.dtype, array.shape) == (after[name].dtype, after[name].shape)
        assert array.tobytes() == after[name].tobytes()


def test_lines_are_short_and_the_text_always_the_same() -> None:
    values = np.random.default_rng(3).normal(size=500).astype(np.float32)
    data = write_arrays({"weights": values, "name": np.array("a long name " * 20)})
    text = arrays_to_text(data)
    assert arrays_to_text(data) == text
    assert all(len(line) <= 300 for line in text.splitlines() if not line.startswith('"name"'))


def test_bytes_that_are_no_arrays_are_refused() -> None:
    with pytest.raises(ValueError, match="arrays"):
        arrays_to_text(b"no archive")


def test_restored_once_and_never_over_a_model(tmp_path: object) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path))
    data = write_arrays({"a": np.arange(3)})
    (folder / f"m.npz{SUFFIX}").write_text(arrays_to_text(data))
    restore(folder)
    assert (folder / "m.npz").read_bytes() == data
    (folder / "m.npz").write_bytes(b"own")
    restore(folder)
    assert (folder / "m.npz").read_bytes() == b"own"
