"""Wheels made here, for environments that are built without a network."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.support.pythons import PYTEST


def make_wheel(
    folder: Path, name: str, version: str, files: Mapping[str, str], requires: tuple[str, ...] = ()
) -> Path:
    """A pure wheel (PEP 427) of modules."""
    info = f"{name}-{version}.dist-info"
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    metadata += [f"Requires-Dist: {each}" for each in requires]
    content = {path: text.encode() for path, text in files.items()}
    content[f"{info}/METADATA"] = ("\n".join(metadata) + "\n").encode()
    return _written(folder, name, version, content)


def wheel_of_installed(name: str, folder: Path) -> Path:
    """A wheel of a pure distribution that is installed here."""
    distribution = importlib.metadata.distribution(name)
    content = {
        str(file): Path(str(file.locate())).read_bytes()
        for file in distribution.files or ()
        if ".." not in file.parts and "__pycache__" not in file.parts
        if file.name not in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
    }
    (info,) = {path.split("/")[0] for path in content if ".dist-info/" in path}
    stem, _, version = info.removesuffix(".dist-info").rpartition("-")
    return _written(folder, stem, version, content)


def pytest_wheels(folder: Path) -> Path:
    """A folder with what `pytest` needs."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PYTEST:
        wheel_of_installed(name, folder)
    return folder


def _written(folder: Path, name: str, version: str, content: dict[str, bytes]) -> Path:
    info = f"{name}-{version}.dist-info"
    tags = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    content[f"{info}/WHEEL"] = tags.encode()
    record = "".join(f"{path},{_digest(data)},{len(data)}\n" for path, data in content.items())
    content[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for member, data in content.items():
            archive.writestr(member, data)
    return path


def _digest(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return f"sha256={digest.decode()}"
