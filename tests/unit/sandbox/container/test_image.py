"""Reads what an image brings. The image is not trusted."""

from __future__ import annotations

import io
import tarfile
import threading
from pathlib import Path, PurePosixPath

import pytest

from sandbox.container import ContainerSandbox
from sandbox.container_image import (
    candidate_interpreters,
    is_product,
    prepare_products,
)
from sandbox.types import Command, Ended, Probe, RunResult, SandboxError
from sandbox.workspace import Workspace
from tests.support.images import PRODUCTS, TESTBED_PYTHON


class Lying:
    """A sandbox whose commands print and leave what the test wants."""

    name, foreign_root = "lying", True

    def __init__(self, archive: bytes | None = None, says: bytes = b"", link: str = "") -> None:
        self._archive, self._says, self._link = archive, says, link

    def probe(self) -> Probe:
        return Probe(self.name, True, True, {})

    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        target = workspace.path / "products.tar"
        if self._link:
            target.symlink_to(self._link)
        elif self._archive is not None:
            target.write_bytes(self._archive)
        return RunResult(Ended.EXITED, 0, self._says, b"", 0.0)


def archive(*members: tuple[str, bytes], link: str = "") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as opened:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            opened.addfile(member, io.BytesIO(data))
        if link:
            member = tarfile.TarInfo(link)
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            opened.addfile(member)
    return made.getvalue()


def test_products_of_the_test_image(container: ContainerSandbox) -> None:
    """Sources, byte code, links, leftovers and files of `.git` are left out."""
    assert prepare_products(container) == dict(sorted(PRODUCTS.items()))


def test_what_the_repository_has_is_no_product(container: ContainerSandbox) -> None:
    found = prepare_products(container, tracked=lambda path: path == "pkg/_version.py")
    assert sorted(found) == sorted(set(PRODUCTS) - {"pkg/_version.py"})


def test_interpreters_of_the_test_image(container: ContainerSandbox) -> None:
    found = candidate_interpreters(container)
    assert next(iter(found.items())) == (PurePosixPath(TESTBED_PYTHON), True)
    assert found[PurePosixPath("/usr/bin/python3")] is False


def test_lines_that_are_no_interpreters_are_passed_over() -> None:
    line = b"certain /opt/x/bin/python\n"
    says = b"guess python3\nnonsense\n\n" + line + b"\xff\xfe\n" + line
    found = candidate_interpreters(Lying(says=says))
    assert found == {PurePosixPath("/opt/x/bin/python"): True}


@pytest.mark.parametrize(
    "path",
    [
        *("a.so", "pkg/_fast.cpython-311-x86_64-linux-gnu.so", "lib/libx.so.1.2", "pkg/mod.pyd"),
        *("pkg/_version.py", "pkg/version.py", "Pkg.egg-info/PKG-INFO"),
        *("src/pkg.egg-info/entry_points.txt", "pkg.egg-link"),
    ],
)
def test_products(path: str) -> None:
    assert is_product(path)


@pytest.mark.parametrize(
    "path",
    [
        *("/a.so", "../a.so", "a/../../b.so", ".git/hooks/x.so", ".GIT/x.so"),
        *("pkg/__pycache__/x.so", "node_modules/x/y.so", "pkg/mod.py", "setup.py", "conftest.py"),
        *("tests/test_version.pyc", "x.pth", "pkg.egg-info/evil.pth", "a\x00.so", "readme.so.md"),
    ],
)
def test_no_products(path: str) -> None:
    assert not is_product(path)
    assert not is_product("")


def test_an_archive_leads_nowhere() -> None:
    made = archive(("/abs.so", b"1"), ("../up.so", b"2"), ("./in.so", b"3"), link="link.so")
    assert prepare_products(Lying(made)) == {"in.so": b"3"}


def test_products_are_bounded_together() -> None:
    made = archive(("a.so", b"x" * 60), ("b.so", b"x" * 60), ("c.so", b"x" * 40))
    assert sorted(prepare_products(Lying(made), most_bytes=100)) == ["a.so", "c.so"]


def test_a_link_in_the_place_of_the_archive_is_not_followed(tmp_path: Path) -> None:
    real = tmp_path / "real.tar"
    real.write_bytes(archive(("a.so", b"secret")))
    assert prepare_products(Lying(link=str(real))) == {}


def test_an_archive_that_is_none_is_an_error() -> None:
    with pytest.raises(SandboxError, match="cannot be read"):
        prepare_products(Lying(b"no archive at all" * 100))
