"""Imported modules in each language. An import is stored as a line
`prefix/part/part`: prefix `.` for the importing file's folder, `..` for the one above, empty for an
absolute import.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import takewhile

MAX_IMPORTS = 200
"""Most imports of one file: files with more are registries or generated."""

_PYTHON = re.compile(
    r"[ \t]*(?:from[ \t]+(?P<module>[.\w]+)[ \t]+import[ \t]*(?P<names>\([^)]{0,20000}\)|[^\n]*)"
    r"|import[ \t]+(?P<modules>[^\n]*))"
)
_QUOTED = re.compile(
    r"[ \t}]*(?:"
    r"(?:const|let|var)\b[^\n'\"]*?\brequire[ \t]*\([ \t]*"
    r"|export\b[^\n'\"]*?\bfrom[ \t]*"
    r"|(?:import|from|\#[ \t]*include|(?:require|include)(?:_once|_relative)?)\b[^\n'\"<]*?"
    r")(?P<quote>['\"<])(?P<path>[^'\"<>\n]+)['\">]"
)
_DOTTED = re.compile(r"[ \t]*(?:import|using)[ \t]+(?:static[ \t]+)?(?P<name>[\w.]+)")
_PHP_USE = re.compile(r"[ \t]*use[ \t]+(?P<name>[\w\\]+)")
_RUST_USE = re.compile(
    r"[ \t]*(?:pub(?:\([^)]*\))?[ \t]+)?(?:use[ \t]+(?P<name>[\w:]+)"
    r"(?P<group>\{[^}]*\})?|mod[ \t]+(?P<mod>\w+)[ \t]*;)"
)
_GO_GROUP = re.compile(
    r"[ \t]*import[ \t]*(?:\((?P<group>[^)]*)\)|[\w.]*[ \t]*\"(?P<one>[^\"]+)\")"
)
_GO_PATH = re.compile(r"\"([^\"\n]+)\"")
_IDENTIFIER = re.compile(r"\w+")


_IMPORT_LINE = re.compile(
    r"^[^\w\n]*(?:import|from|include|require|require_relative|use|using|mod|pub|export|const|let"
    r"|var|require_once|include_once)\b",
    re.MULTILINE,
)


def imports(text: str, language: str) -> tuple[str, ...]:
    """Return the imports of a file in order."""
    reader = _READERS.get(language)
    if reader is None:
        return ()
    lines = _IMPORT_LINE.finditer(text)
    names = dict.fromkeys(name for line in lines for name in reader(text, line.start()))
    return tuple(name for name in names if name.strip("./"))[:MAX_IMPORTS]


def _python(text: str, at: int) -> Iterator[str]:
    match = _PYTHON.match(text, at)
    if match is None:
        return
    if match["modules"] is not None:
        for part in match["modules"].partition("#")[0].split(","):
            yield "/".join(_IDENTIFIER.findall(part.partition(" as ")[0]))
        return
    module = match["module"]
    dots = len(module) - len(module.lstrip("."))
    prefix = "" if not dots else "." * dots + "/"
    path = "/".join(part for part in module.split(".") if part)
    for part in match["names"].strip("()").replace("\\", " ").split(","):
        name = _IDENTIFIER.match(part.strip())
        if name:
            yield prefix + "/".join(filter(None, (path, name[0])))
        elif part.strip() == "*":
            yield prefix + path


def _quoted(text: str, at: int) -> Iterator[str]:
    match = _QUOTED.match(text, at)
    if match is not None:
        head = text[at : match.start("quote")]
        relative = "_relative" in head or ("#" in head and match["quote"] == '"')
        yield _from_path(match["path"], relative)


def _from_path(path: str, relative: bool) -> str:
    parts = [part for part in path.split("/") if part]
    up = sum(1 for part in parts if part == "..")
    local = relative or (parts[:1] in (["."], [".."]))
    names = [part for part in parts if part not in {".", ".."}]
    stem, _, suffix = names[-1].rpartition(".") if names else ("", "", "")
    if stem and len(suffix) <= 4:
        names[-1] = stem
    return ("." * (up + 1) + "/" if local else "") + "/".join(names)


def _dotted(text: str, at: int) -> Iterator[str]:
    match = _DOTTED.match(text, at)
    if match is not None:
        yield match["name"].strip(".").replace(".", "/")


def _go(text: str, at: int) -> Iterator[str]:
    match = _GO_GROUP.match(text, at)
    if match is not None:
        yield from _GO_PATH.findall(match["group"]) if match["group"] else [match["one"] or ""]


def _rust(text: str, at: int) -> Iterator[str]:
    match = _RUST_USE.match(text, at)
    if match is None:
        return
    if match["mod"]:
        yield f"./{match['mod']}"
        return
    parts = [part for part in match["name"].split("::") if part]
    up = sum(1 for part in parts if part == "super")
    local = parts[:1] in (["self"], ["super"])
    prefix = "." * (up + 1) + "/" if local else ""
    path = [part for part in parts if part not in {"crate", "self", "super"}]
    for name in _IDENTIFIER.findall(match["group"] or "") or [""]:
        yield prefix + "/".join(filter(None, (*path, name)))


def _php(text: str, at: int) -> Iterator[str]:
    match = _PHP_USE.match(text, at)
    if match is not None:
        yield match["name"].strip("\\").replace("\\", "/")
    else:
        yield from _quoted(text, at)


_READERS: Mapping[str, Callable[[str, int], Iterator[str]]] = {
    "python": _python,
    **dict.fromkeys(
        ("javascript", "typescript", "tsx", "vue", "svelte", "c", "cpp", "ruby"), _quoted
    ),
    "go": _go,
    **dict.fromkeys(("java", "csharp"), _dotted),
    "rust": _rust,
    "php": _php,
}

_PACKAGE_FILES = frozenset({"__init__", "index", "mod"})
_ROOTS = frozenset({"src", "lib", "python", "app"})


class ModuleTable:
    """Finds the files that an import may mean."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._matches: dict[tuple[str, str], tuple[int, ...]] = {}
        self._by_leaf: defaultdict[str, list[int]] = defaultdict(list)
        for number in range(len(paths)):
            if leaf := self.leaf(number):
                self._by_leaf[leaf].append(number)

    @cached_property
    def _in_folder_of(self) -> Mapping[str, list[int]]:
        numbers: defaultdict[str, list[int]] = defaultdict(list)
        for number, path in enumerate(self._paths):
            numbers[path.rpartition("/")[0]].append(number)
        return numbers

    @cached_property
    def _by_last_folder(self) -> Mapping[str, list[str]]:
        folders: defaultdict[str, list[str]] = defaultdict(list)
        for folder in self._in_folder_of:
            folders[folder.rpartition("/")[2]].append(folder)
        return folders

    def leaf(self, number: int) -> str:
        """Return the last part of a file's module name; for a package's own file, its folder's."""
        folder, _, name = self._paths[number].rpartition("/")
        stem = name.rpartition(".")[0] or name
        return folder.rpartition("/")[2] if stem in _PACKAGE_FILES else stem

    def _folder(self, number: int) -> tuple[str, ...]:
        return _parts(self._paths[number].rpartition("/")[0])

    def _module(self, number: int) -> tuple[str, ...]:
        folder, _, name = self._paths[number].rpartition("/")
        stem = name.rpartition(".")[0] or name
        return _parts(folder) if stem in _PACKAGE_FILES else (*_parts(folder), stem)

    def find(self, line: str, importer: int) -> tuple[int, ...]:
        """Return the numbers of the files that an import may mean; of several, the nearest."""
        # The key has only the importer's folder, because files of one folder import much the same.
        key = line, self._paths[importer].rpartition("/")[0]
        if key not in self._matches:
            self._matches[key] = self._find(line, importer)
        return self._matches[key]

    def _find(self, line: str, importer: int) -> tuple[int, ...]:
        prefix, _, rest = line.partition("/") if line.startswith(".") else ("", "", line)
        parts = tuple(part for part in rest.split("/") if part)
        if prefix:
            folder = self._folder(importer)
            if len(prefix) - 1 > len(folder):
                return ()
            base = folder[: len(folder) - (len(prefix) - 1)]
            return self._exact((*base, *parts)) or (self._exact((*base, *parts[:-1])))
        candidates = (self._ending(parts[:size], importer) for size in (len(parts), len(parts) - 1))
        return next(filter(None, candidates), ()) or self._in_folder(parts)

    def _exact(self, parts: tuple[str, ...]) -> tuple[int, ...]:
        numbers = self._by_leaf.get(parts[-1], ()) if parts else ()
        return tuple(number for number in numbers if self._module(number) == parts)

    def _ending(self, parts: tuple[str, ...], importer: int) -> tuple[int, ...]:
        size = len(parts)
        if not size:
            return ()
        numbers = [n for n in self._by_leaf.get(parts[-1], ()) if self._module(n)[-size:] == parts]
        if size == 1:
            numbers = [n for n in numbers if self._is_top(n, importer)]
        nearest = max((self._closeness(n, importer) for n in numbers), default=0)
        return tuple(n for n in numbers if self._closeness(n, importer) == nearest)

    def _is_top(self, number: int, importer: int) -> bool:
        above = self._module(number)[:-1]
        return not above or above[-1] in _ROOTS or above == self._folder(importer)

    def _closeness(self, number: int, importer: int) -> int:
        pairs = zip(self._folder(number), self._folder(importer), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def _in_folder(self, parts: tuple[str, ...]) -> tuple[int, ...]:
        for first in range(len(parts) - 1):
            tail = "/" + "/".join(parts[first:])
            ending = self._by_last_folder.get(parts[-1], ())
            folders = [folder for folder in ending if f"/{folder}".endswith(tail)]
            if folders:
                return tuple(sorted(n for f in folders for n in self._in_folder_of[f]))
        return ()


def _parts(folder: str) -> tuple[str, ...]:
    return tuple(folder.split("/")) if folder else ()
