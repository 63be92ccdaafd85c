"""What ties a test file to an edited file: its name, its folder, its imports. Pure.

A tie is a weight and a reason in words. The weights are ordered so that one strong tie beats any
number of weak ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from agent.validation.choosing.catalogue import TestFile, TestFiles
from agent.validation.layout import module_name

_SAME_NAME = 10.0
_FOLDER_NAME = 6.0  # parser/test_errors.py for parser.py
_NAME_PART = 5.0  # test_mod_errors.py for mod.py, test_pl.py for lang_pl.py
_PACKAGE_NAME = 3.0  # test_pkg.py for pkg/mod.py
_IMPORTS = 3.0  # next to history and names it says little: 4 and 6 do worse
_IMPORTS_PACKAGE = 1.0
_INDIRECT = 2.0  # imports what imports it
_NEAR = 2.0  # times the share of the edited file's folders that the test file shares

# `test_x`, `x_test`, `x.spec`, `XTest`, `TestX`, `XIT`: what is left is what is tested.
_AFFIXES = re.compile(
    r"^tests?[_.-]|[_.-](?:tests?|spec|e2e|cy)$|(?:(?<=[a-z0-9])(?:Tests?|TestCase|IT|Spec)$)|^Test(?=[A-Z])"
)

Tie = tuple[float, str]


@dataclass(frozen=True, slots=True)
class Target:
    """What an edited source file is known by."""

    path: str
    module: str
    stem: str  # of the module: the folder's name for an __init__.py
    package: str  # the last folder
    folders: tuple[str, ...]


def target_of(path: str) -> Target:
    """What the file is known by."""
    module = module_name(path)
    parts = module.split(".")
    package = parts[-2] if len(parts) > 1 else ""
    return Target(path, module, parts[-1], package, PurePosixPath(path).parts[:-1])


def name_tie(test: TestFile, target: Target, files: TestFiles) -> Tie | None:
    """Named after the file, a part of its name, or its folder."""
    pure = PurePosixPath(test.path)
    bare = _AFFIXES.sub("", pure.stem).strip("_").lower()
    stem, package = target.stem.strip("_").lower(), target.package.strip("_").lower()
    if bare in (stem, f"{package}_{stem}") and bare:
        return _SAME_NAME, f"named after {target.path}"
    folders = {part.lower().removeprefix("test_") for part in pure.parts[:-1]}
    if stem and stem in folders and stem not in map(str.lower, target.folders):
        return _FOLDER_NAME, f"in a folder named after {target.path}"
    if (stem and bare.startswith(f"{stem}_")) or (bare and stem.endswith(f"_{bare}")):
        return _NAME_PART, f"named after {target.path}"
    if package and bare == package:
        return _PACKAGE_NAME, f"named after the folder of {target.path}"
    return None


def import_tie(test: TestFile, target: Target, files: TestFiles) -> Tie | None:
    """Imports the file, something that imports it, or its package."""
    if target.path in test.imports:
        return _IMPORTS, f"imports {target.module}"
    if files.import_it(test.imports, target.path) and (
        through := sorted(test.imports & files.importers(target.path))
    ):
        share = 1 / (1 + math.log2(1 + len(files.importers(target.path))))
        return _IMPORTS_PACKAGE + _INDIRECT * share, f"imports {target.module} by {through[0]}"
    folder = "/".join(target.folders)
    if any(path == f"{folder}/__init__.py" for path in test.imports):
        return _IMPORTS_PACKAGE, f"imports the package of {target.module}"
    return None


def near_tie(test: TestFile, target: Target, files: TestFiles) -> Tie | None:
    """Lies below folders of the same names."""
    if not target.folders:
        return None
    shared = len(set(target.folders) & set(PurePosixPath(test.path).parts[:-1]))
    if not shared:
        return None
    return _NEAR * shared / len(target.folders), f"near {target.path}"


def strongest(test: TestFile, targets: Sequence[Target], files: TestFiles) -> list[Tie]:
    """For each kind of tie the strongest one, so that many edited files do not add up."""
    found = []
    for kind in (name_tie, import_tie, near_tie):
        ties = [tie for target in targets if (tie := kind(test, target, files))]
        if ties:
            found.append(max(ties, key=lambda tie: (tie[0], tie[1])))
    return found
