"""Reads the text of tests and source where no run can tell. Pure.

It finds what a patch takes away from existing tests, and tests that are weak evidence: they ask
for what only the patch has, or look at the text of code. Of other languages than Python few tests
are replayed, so there code that asks for its runner counts against a patch.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath

from agent.patching import parse_python
from agent.repository import language_of
from agent.types import FileChange
from agent.verify.judging.reproduction import NameChecks
from agent.verify.judging.wording import listed, number

# A test and its name. In Python the match is the whole function, in other languages its beginning.
_TEST = re.compile(
    r"^(?P<indent>[ \t]*)(?:async +)?def +(?P<python>test\w*)[^\n]*"
    r"(?:\n(?:(?P=indent)(?:[ \t]+|\))[^\n]*|[ \t]*(?=\n|\Z)))*"
    r"|\b(?:it|test)(?:\.\w+)*\s*\(\s*(?P<script>['\"`][^\n]*?['\"`])\s*,"
    r"|\bfunc\s+(?P<go>Test\w+)|#\[(?:\w+::)*test\b[^\]]*\][^{;]*?\bfn\s+(?P<rust>\w+)"
    r"|@(?:Parameterized|Repeated)?Test\b[^{;]*?\bvoid\s+(?P<java>\w+)",
    re.MULTILINE,
)
_BLOCK = re.compile(r"^[ \t]*(?:describe|context|suite)(?:\.\w+)*\s*\(\s*['\"`]", re.MULTILINE)
_ASSERTS = re.compile(
    r"\b(?:assert\w*!?|expect|raises|warns|fail|require\.\w+|should|t\.(?:Error|Fatal|Fail)\w*"
    r"|verify)(?!\w)"
)
_ALWAYS_TRUE = re.compile(r"\bassert\w*[ (]+True\b|\bassert [^\n]*\bor True\b")
_OFF = re.compile(
    r"\b(?:it|test|describe)\.(?:skip|todo)\b|\bx(?:it|describe)\(|\bt\.Skip|#\[ignore"
    r"|@(?:Ignore|Disabled)\b|\bskip\w*\b|\bxfail\b|\bexpectedFailure\b|\bimportorskip\b"
)


@dataclass(frozen=True, slots=True)
class _Unit:
    """A test. `code` is the same for the same body under another name."""

    name: str
    code: str
    assertions: int
    skipped: bool


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")


def _tests_of(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the offset, text and name of each test."""
    tests = list(_TEST.finditer(text))
    starts = [*(match.start() for match in tests[1:]), len(text)]
    for match, start in zip(tests, starts, strict=False):
        names = (match[one] for one in ("python", "script", "go", "rust", "java"))
        block = _BLOCK.search(text, match.end(), start)
        end = match.end() if match["python"] else block.start() if block else start
        yield match.start(), text[match.start() : end], next(filter(None, names)).strip("'\"`")


def _units(data: bytes | None) -> Iterator[_Unit]:
    text = _text(data)
    for start, body, name in _tests_of(text):
        skipped = _OFF.search(text[max(0, start - 80) : start] + body) is not None
        code = f"{skipped} {' '.join(body.replace(name, '', 1).split())}"
        assertions = len(_ASSERTS.findall(body)) - len(_ALWAYS_TRUE.findall(body))
        yield _Unit(name, code, assertions, skipped)


def find_losses(tests: Sequence[FileChange], source: Sequence[FileChange] = ()) -> str:
    """Return what the patch takes away from existing tests, as a phrase after `the patch`, or "".

    A test that is renamed or moved is not lost. Of `source`, only Rust files hold tests.
    """
    changes = [*tests, *(change for change in source if language_of(change.path) == "rust")]
    before = [unit for change in changes for unit in _units(change.before)]
    after = [unit for change in changes for unit in _units(change.after)]
    codes, skipped, lost = {unit.code for unit in after}, set[str](), 0
    for unit in before:
        if unit.code not in codes:
            now = [one for one in after if one.name == unit.name]
            lost += max(0, unit.assertions - max((one.assertions for one in now), default=0))
            skipped.update(one.name for one in now if one.skipped and not unit.skipped)
    parts = [f"skips {number(len(skipped), 'test')} ({listed(sorted(skipped))})"] if skipped else []
    if lost:
        parts.append(f"takes {number(lost, 'assertion')} out of existing tests")
    return " and ".join(parts)


def edited_inside(changes: Sequence[FileChange]) -> frozenset[str]:
    """Return the names of existing tests inside Rust source files that the patch changes."""
    names: set[str] = set()
    for change in changes:
        if language_of(change.path) == "rust":
            after = {body.strip() for _, body, _ in _tests_of(_text(change.after))}
            tests = _tests_of(_text(change.before))
            names.update(name for _, body, name in tests if body.strip() not in after)
    return frozenset(names)


# ------------------------------------------------------------------------------------ weak tests

_LITERAL = r"(?:-?\d|['\"]|None\b|True\b|False\b)"
_DIFFERENCE = re.compile(
    rf"\bassert\s+(?:[^\n]*!=\s*{_LITERAL}|{_LITERAL}[^\n]*!=)"
    rf"|\bassertNotEqual\((?:{_LITERAL}|[^\n]*,\s*{_LITERAL})"
)
_OF_SOURCE = re.compile(
    r"\b(?P<name>__code__|__doc__|__annotations__|getsource\w*|signature(?=\())|\.__file__\b"
    r"|[\[(]\s*['\"]git['\"]"
)
_READS = re.compile(
    r"\b(?:[oO]pen|read|read_\w+|[rR]eadFile\w*|createReadStream|[sS]tat(?:Sync)?|metadata)\("
    r"|\bFiles?[.(]|\binclude_"
)
_PROSE = (".md", ".rst", ".adoc")

# A test looks at a function or class itself: its text, name, parameters or members.
_ITEM = re.compile(
    r"\b(?:function\*?|func(?:\s*\([^)]*\))?|fn|class|struct|enum|trait)\s+(\w+)"
    r"|\b(?:const|let|var)\s+(\w+)\s*=\s*(?:async\s*)?(?:function\b|\([^)]*\)\s*=>|\w+\s*=>)"
)
_LOOKS = (
    r"ITEM(?:\.(?:toString\(\)|length\b|name\b)|\s*\+\s*['\"`])|\b(?:String|inspect)\(ITEM\)"
    r"|\$\{ITEM\}|ITEM\.class\.\w*(?:Annotation|Constructor|Field|Method|Modifier)"
)


def why_weak(
    test: str, files: Sequence[FileChange], source: Sequence[FileChange], names: NameChecks
) -> str:
    """Return why a test of `files` that passes newly is no evidence, as a clause, or ""."""
    place, _, title = test.partition("::")
    file = next((one for one in files if _holds(one, place, title)), None)
    if file is None:
        return ""
    text, title, in_python = _text(file.after), title.rpartition("::")[2], _is_python(file)
    body, shared = text, text
    for _, one, name in _tests_of(text):
        body = one if name in (title, title.partition("[")[0]) else body
        shared = shared.replace(one, "")
    new = sorted(set(chain(*map(_new_names, source))))
    asked = [n for n in new if names.brought(n) and not names.in_issue(n)]
    asked = [n for n in asked if _uses(n, body, shared, in_python=in_python)]
    asked += [c.path for c in source if c.before is None and _quotes(c.path, body)]
    if asked:
        return f"it asks for {listed(asked)}, which the issue does not speak of"
    of_source = (match["name"] or "__file__" for match in _OF_SOURCE.finditer(body))
    looks = in_python and any(not names.in_issue(name) for name in of_source)
    if looks or any(_looks_at(c, body) for c in source if c.before is not None):
        return "it looks at the source and not at what it does"
    differences = len(_DIFFERENCE.findall(body))
    if differences and differences == len(_ASSERTS.findall(body)):
        return "it asserts only what the result is not"
    return ""


def _holds(file: FileChange, place: str, name: str) -> bool:
    """Whether a test of an id is in the file. Go names the folder of a test and not its file."""
    if place.endswith(file.path):
        return True
    in_folder = file.path.endswith(".go") and str(PurePosixPath(file.path).parent) == place
    return in_folder and f"func {name.partition('/')[0]}(" in _text(file.after)


def _is_python(change: FileChange) -> bool:
    return language_of(change.path) == "python"


def _quotes(path: str, body: str) -> bool:
    return re.search(rf"['\"`/]{re.escape(path)}", body) is not None


def _uses(name: str, body: str, shared: str, *, in_python: bool) -> bool:
    """Whether a test uses a name: as a property, in a string, or imported."""
    word = rf"(?<!\w){name}(?!\w)"
    imported = (
        rf"\bfrom\s+[\w.]+\s+import\b(?:\s*\([^)]*|[^\n]*){word}|\bfrom\s+[\w.]*{word}"
        rf"|\{{[^}}]*{word}[^}}]*\}}\s*(?:=\s*(?:await\s*)?(?:require|import)|from\b)"
    )
    used = rf"\.\s*{word}|['\"`](?:[\w.]+\.)?{word}(?:\.[\w.]+)?['\"`]|{imported}"
    if re.search(used, body):
        return True
    mine = in_python or re.search(word, body) is not None
    return mine and re.search(used, shared) is not None


def _looks_at(change: FileChange, body: str) -> bool:
    """Whether a test reads a file, or looks at a function or class of it by its text."""
    path = change.path
    if path.lower().endswith(_PROSE):
        path = path.rpartition("/")[2]
    if _READS.search(body) and _quotes(path, body):
        return True
    items = "|".join(sorted({a or b for a, b in _ITEM.findall(_text(change.after))}))
    looks = _LOOKS.replace("ITEM", rf"(?:\w+\.)*(?<!\w)(?:{items})")
    return not _is_python(change) and bool(items) and re.search(looks, body) is not None


_SCRIPTS = frozenset({"javascript", "typescript", "tsx"})
_EXPORTED = re.compile(
    r"\bexports\s*=\s*\{([^}]*)\}|\bexport\s*\{([^}]*)\}|[\w$]\.(?!exports\s*=)(\w+)\s*=(?![=>])"
    r"|\bexport\s+(?:default\s+)?(?:async\s+)?(?:function\*?|class|const|let|var)\s+(\w+)"
)


def _new_names(change: FileChange) -> Iterator[str]:
    """Yield what a Python or JavaScript file offers to others, and the name of a new module."""
    if language_of(change.path) in _SCRIPTS:
        for groups in _EXPORTED.findall(_text(change.after)):
            for item in ",".join(groups).split(","):  # `name`, `name: value` or `name as other`
                yield from re.findall(r"\w+", item.partition(":")[0])[-1:]
    if not _is_python(change):
        return
    if change.before is None:
        yield change.path.removesuffix("/__init__.py").rpartition("/")[2].removesuffix(".py")
    try:
        body = parse_python(change.after or b"").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for part in body:
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield part.name
            continue
        stored = (n for n in ast.walk(part) if isinstance(n, ast.Name))
        yield from (node.id for node in stored if isinstance(node.ctx, ast.Store))
        # A test may import the same name from where it comes.
        names = getattr(part, "names", ()) if isinstance(part, ast.Import | ast.ImportFrom) else ()
        own = getattr(part, "level", 0)
        yield from (alias.asname or alias.name for alias in names if alias.asname or own)


# -------------------------------------------- languages of which not every test can be replayed

_NOT_REPLAYED = frozenset({*_SCRIPTS, "go", "rust", "java"})

# How code asks whether a test runs it, by its runner or its stack, or replaces assertions.
_ASKS = re.compile(
    r"JEST_WORKER_ID|NODE_TEST_CONTEXT|\bVITEST|['\"](?:node:test|vitest|@jest/globals)['\"]"
    r"|\bprepareStackTrace\b|new Error\([^)]*\)\.stack|\bexpect\.extend\("
    r"|\bassert(?:\.strict)?(?:\.\w+|\[[^\]\n]+\])\s*=(?!=)|assert[^)\n]*\)(?:\.\w+)+\s*=(?!=)"
    r"|\b(?:globalThis|global|window)\.(?:it|test|expect|describe|jest|assert)\b"
    r"|\btesting\.Testing\(|\bflag\.Lookup\(|\bruntime\.(?:Callers?|Stack)\(|\bcfg!\([^\n;{]*\btest\b"
    r"|\bcfg!?\([^\n;{]*\b(?:not\(test\)|debug_assertions)|\borg\.(?:junit|testng)\b|\bsurefire\b"
    r"|\bStackWalker\b|\bgetStackTrace\(\)|\bforName\(\"[\w.]*Test|\"basedir\"|\bdebug\.Stack\("
    r"|\bos\.Executable\("
)


def asks_for_runner(source: Sequence[FileChange]) -> str:
    """Return where code newly asks for its runner, as a phrase after `the patch`, or ""."""
    for change in source:
        if language_of(change.path) not in _NOT_REPLAYED:
            continue
        before, after = (
            Counter(match[0].strip() for match in _ASKS.finditer(_text(data)))
            for data in (change.before, change.after)
        )
        if new := sorted(after - before):
            return f"asks for its test runner ({change.path}: {new[0]})"
    return ""
