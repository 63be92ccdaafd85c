from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.host import Bind, Link, follow_links, read_only_mounts
from sandbox.types import SandboxError


def test_links_on_the_way_are_made_inside_as_they_are_outside(tmp_path: Path) -> None:
    real = tmp_path / "versions" / "3.12.1"
    (real / "bin").mkdir(parents=True)
    (tmp_path / "versions" / "3.12").symlink_to("3.12.1")
    (tmp_path / "python").symlink_to(tmp_path / "versions" / "3.12")
    assert read_only_mounts([tmp_path / "python" / "bin"], homes=()) == (
        Link(tmp_path / "python", str(tmp_path / "versions" / "3.12")),
        Link(tmp_path / "versions" / "3.12", "3.12.1"),
        Bind(real / "bin", real / "bin"),
    )


def test_what_is_shown_already_is_not_shown_twice(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "link").symlink_to("b")
    paths = [tmp_path / "a" / "link", tmp_path / "a", tmp_path / "a" / "b", Path("/usr/bin/env")]
    assert read_only_mounts(paths, homes=()) == (Bind(tmp_path / "a", tmp_path / "a"),)


def test_dots_and_links_resolve_as_the_kernel_does(tmp_path: Path) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    (tmp_path / "link").symlink_to("x/y")
    real, links = follow_links(tmp_path / "link" / ".." / "y")
    assert real == tmp_path / "x" / "y" == (tmp_path / "link" / ".." / "y").resolve()
    assert links == (Link(tmp_path / "link", "x/y"),)


def test_a_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(SandboxError, match="too many links"):
        follow_links(tmp_path / "a")


def test_a_link_that_leads_home_does_not_show_the_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "tools").symlink_to("home")
    with pytest.raises(SandboxError, match="refused to show"):
        read_only_mounts([tmp_path / "tools"], homes=(home,))


def test_a_missing_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="does not exist"):
        read_only_mounts([tmp_path / "absent"], homes=())
