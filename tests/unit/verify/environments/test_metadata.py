"""Metadata of a project that is not installed."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.repository.snapshot import take_snapshot
from agent.verify.environments.preparing import make_dist_info, read_static_version

Make = Callable[[Mapping[str, str]], Path]

PYPROJECT = """
[project]
name = "Some.Tool"
version = "1.2.3"
[project.scripts]
tool = "tool:main"
[project.entry-points.pytest11]
tool = "tool.plugin"
"""


def test_the_metadata_is_found(
    make_repository: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = take_snapshot(make_repository({"pyproject.toml": PYPROJECT}))
    place = tmp_path / "place"
    for path, data in make_dist_info("Some.Tool", "1.2.3", snapshot).items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(data)
    monkeypatch.syspath_prepend(str(place))

    assert importlib.metadata.version("some-tool") == "1.2.3"
    points = importlib.metadata.distribution("some_tool").entry_points
    assert {(p.group, p.name, p.value) for p in points} == {
        ("console_scripts", "tool", "tool:main"),
        ("pytest11", "tool", "tool.plugin"),
    }
    assert "tool" not in sys.modules


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"pyproject.toml": PYPROJECT}, "1.2.3"),
        ({"pyproject.toml": '[tool.poetry]\nversion = "2.0b1"\n'}, "2.0b1"),
        ({"pyproject.toml": "[project]\ndynamic = ['version']\n", "x.py": ""}, ""),
        ({"pyproject.toml": "[broken", "setup.cfg": "[metadata]\nversion = 3.1\n"}, "3.1"),
        ({"setup.cfg": "[metadata]\nversion = attr: tool.v\n", "x.py": ""}, ""),
        ({"src/tool/__init__.py": '__version__ = "4.5.dev0"\n'}, "4.5.dev0"),
        ({"tool/__about__.py": "__version__: str = '6'\n"}, "6"),
        ({"tool/__init__.py": "__version__ = read()\n"}, ""),
        ({"other/__init__.py": "__version__ = '1'\n"}, ""),
    ],
)
def test_versions_in_plain_words(
    make_repository: Make, files: Mapping[str, str], version: str
) -> None:
    assert read_static_version("tool", take_snapshot(make_repository(files))) == version


def test_entry_points_of_setup_cfg(make_repository: Make) -> None:
    text = "[options.entry_points]\nconsole_scripts =\n    a = b:c\n    nonsense\n"

    files = make_dist_info("tool", "1", take_snapshot(make_repository({"setup.cfg": text})))

    assert files["tool-1.dist-info/entry_points.txt"] == b"[console_scripts]\na = b:c\n"
