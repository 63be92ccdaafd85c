"""Reads tests where no run can tell: what a patch takes away from them, and weak ones. Pure.

In other languages than Python tests are neither traced nor replayed: there a test that uses what
only the patch has, or looks at the text of code, is weak, and so is code that asks for its runner.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath

from agent.patching import parse_python
from agent.repository import language_of
from agent.types import FileChange
from agent.verify.judging.reproduction import NameChecks
from agent.verify.judging.wording import listed, number

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def tree_of(data: bytes | None) -> ast.AST:
    """Return the syntax tree, or an empty one for what this Python cannot parse."""
    try:
        return parse_python(data or b"")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")


# ------------------------------------------------------------------------------------ lost tests

_SKIPS = re.compile(r"\b(?:skip\w*|xfail|expectedFailure|importorskip)\b")

# A test and its name, in languages other than Python.
_TEST = re.compile(
    r"\b(?:it|test)(?:\.\w+)*\s*\(\s*(?P<script>['\"`][^\n]*?['\"`])\s*,"
    r"|\bfunc\s+(?P<go>Test\w+)|#\[(?:\w+::)*test\b[^\]]*\][^{;]*?\bfn\s+(?P<rust>\w+)"
    r"|@(?:Parameterized|Repeated)?Test\b[^{;]*?\bvoid\s+(?P<java>\w+)"
)
_ASSERTS = re.compile(
    r"\b(?:assert\w*!?|expect|require\.\w+|should|t\.(?:Error|Fatal|Fail)\w*|verify)\b"
)
_OFF = re.compile(
    r"\b(?:it|test|describe)\.(?:skip|todo)\b|\bx(?:it|describe)\(|\bt\.Skip|#\[ignore"
    r"|@(?:Ignore|Disabled)\b"
)


@dataclass(frozen=True, slots=True)
class _Unit:
    """A function of a test file. `code` is the same for the same body under another name."""

    path: str
    name: str
    code: str
    assertions: int
    cases: int
    skipped: bool
    is_test: bool


def find_losses(tests: Sequence[FileChange], source: Sequence[FileChange] = ()) -> str:
    """Return what the patch takes away from existing tests, as a phrase after `the patch`, or "".

    A test that is renamed or moved is not lost. Of `source`, only Rust files hold tests.
    """
    changes = [*tests, *(change for change in source if language_of(change.path) == "rust")]
    before = [unit for change in changes for unit in _units(change.path, change.before)]
    after = [unit for change in changes for unit in _units(change.path, change.after)]
    codes = Counter(unit.code for unit in after)
    removed, skipped, assertions = [], [], 0
    for unit in before:
        if codes[unit.code]:  # it is still there, perhaps under another name
            codes[unit.code] -= 1
            continue
        named = sorted((u for u in after if u.name == unit.name), key=lambda u: u.path != unit.path)
        if not named:
            assertions += unit.assertions
            removed += [unit.name] * unit.is_test
            continue
        now = named[0]
        if not _folds(unit.code, now):
            assertions += max(0, unit.assertions - now.assertions)
        if now.cases < unit.cases:
            removed.append(f"{number(unit.cases - now.cases, 'case')} of {unit.name}")
        if now.skipped and not unit.skipped:
            skipped.append(unit.name)
    parts = [
        f"{verb} {number(len(names), 'test')} ({listed(sorted(names))})"
        for verb, names in (("removes", removed), ("skips", skipped))
        if names
    ]
    if assertions:
        parts.append(f"takes {number(assertions, 'assertion')} out of existing tests")
    return " and ".join(parts)


_LOOP = re.compile(r"\bfor\b|\.(?:forEach|each|map)\s*\(|\bFor\(")
_VALUE = re.compile(r"\bConstant\(|\b\d[\w.]*|'[^'\n]*'|\"[^\"\n]*\"")


def _folds(before: str, now: _Unit) -> bool:
    """Whether a test asserts in a new loop, over no fewer values than it had before."""
    loops = _LOOP.search(now.code) is not None and _LOOP.search(before) is None
    values = len(_VALUE.findall(now.code)) >= len(_VALUE.findall(before))
    return loops and values and now.assertions > 0


def edited_inside(changes: Sequence[FileChange]) -> frozenset[str]:
    """Return the names of existing tests inside Rust source files that the patch changes."""
    names: set[str] = set()
    for change in changes:
        if language_of(change.path) == "rust":
            after = {unit.code for unit in _units(change.path, change.after)}
            before = _units(change.path, change.before)
            names.update(unit.name for unit in before if unit.is_test and unit.code not in after)
    return frozenset(names)


def _units(path: str, data: bytes | None) -> Iterator[_Unit]:
    if data is None:
        return
    if language_of(path) != "python":
        yield from _by_lines(path, _text(data))
        return
    for name, node, around in _functions(tree_of(data), "", ""):
        marks = around + "".join(map(ast.unparse, node.decorator_list))
        body = ast.Module(node.body, [])
        calls = (n.func for n in ast.walk(body) if isinstance(n, ast.Call))
        asserts = sum(map(_is_assertion, ast.walk(body)))
        is_test = node.name.startswith("test")
        if is_test or asserts:
            skipped = _SKIPS.search(marks + "".join(map(ast.unparse, calls))) is not None
            cases, code = sum(map(_cases, node.decorator_list)), f"{marks}{ast.dump(body)}"
            yield _Unit(path, name, code, asserts, cases, skipped, is_test)


def _cases(mark: ast.expr) -> int:
    if not (isinstance(mark, ast.Call) and "param" in ast.unparse(mark.func)):
        return 0
    return sum(len(arg.elts) for arg in mark.args if isinstance(arg, ast.List | ast.Tuple))


def _functions(tree: ast.AST, prefix: str, marks: str) -> Iterator[tuple[str, _Function, str]]:
    """Yield the functions and methods with their dotted name and the marks around them."""
    for node in getattr(tree, "body", ()):
        if isinstance(node, _FUNCTIONS):
            yield f"{prefix}{node.name}", node, marks
        elif isinstance(node, ast.ClassDef):
            more = "".join(map(ast.unparse, node.decorator_list))
            yield from _functions(node, f"{prefix}{node.name}.", marks + more)
        elif isinstance(node, ast.If | ast.Try):
            yield from _functions(node, prefix, marks)


def _is_assertion(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        values = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
        return not any(isinstance(v, ast.Constant) and bool(v.value) for v in values)
    if not isinstance(node, ast.Call):
        return False
    name = str(getattr(node.func, "attr", getattr(node.func, "id", ""))).lower().lstrip("_")
    constant = bool(node.args) and all(isinstance(a, ast.Constant) for a in node.args)
    return name.startswith(("assert", "raises", "warns", "fail", "expect")) and not constant


def _by_lines(path: str, text: str) -> Iterator[_Unit]:
    """Yield the tests of a file; each reaches to the next one."""
    for start, body, name in _tests_of(text):
        code = "\n".join(line.strip() for line in body.replace(name, "", 1).splitlines())
        skipped = _OFF.search(text[max(0, start - 80) : start] + body) is not None
        count = len(_ASSERTS.findall(body))
        yield _Unit(path, name, code.strip(), count, 0, skipped, is_test=True)


def _tests_of(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the offset, text and name of each test of a file in another language than Python."""
    tests = list(_TEST.finditer(text))
    ends = [*(match.start() for match in tests[1:]), len(text)]
    for match, end in zip(tests, ends, strict=False):
        yield match.start(), text[match.start() : end], next(filter(None, match.groups()), "")


# ------------------------------------------------------------------------------------ weak tests


@dataclass(frozen=True, slots=True)
class TestReader:
    """Reads the tests of one patch, `files`, beside the patch's `source` and the issue's text."""

    __test__ = False  # not a test class

    files: Sequence[FileChange]
    source: Sequence[FileChange]
    issue: str
    names: NameChecks

    def why_weak(self, test: str) -> str:
        """Return why a test that passes newly is no evidence, as a clause, or ""."""
        place, _, name = test.partition("::")
        file = next((one for one in self.files if _holds(one, place, name)), None)
        if file is None:
            return ""
        if all(map(_is_prose, self.source)):
            return "the patch changes nothing but documentation and comments"
        if language_of(file.path) != "python":
            return self._why_other(_text(file.after), name.rpartition("::")[2])
        tree, dotted = tree_of(file.after), name.partition("[")[0].replace("::", ".")
        function = next((node for one, node, _ in _functions(tree, "", "") if one == dotted), None)
        if function is None:
            return ""
        asked = self._asked([*_shared(tree), *function.body])
        if asked:
            return f"it asks for {listed(asked)}, which the issue does not speak of"
        if any(map(self._reads_source, ast.walk(function))) or self._opens_source(function):
            return "it reads the source and not what it does"
        assertions = [node for node in ast.walk(function) if _is_assertion(node)]
        if assertions and all(map(_is_difference, assertions)):
            return "it asserts only what the result is not"
        return ""

    def _asked(self, body: Sequence[ast.stmt]) -> list[str]:
        """Return the names that the patch brings, as attributes, imports or strings of a test."""
        used: set[str] = set()
        for node in (node for part in body for node in ast.walk(part)):
            if isinstance(node, ast.Attribute):
                used.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                used.update([node.value, *node.value.split(".")])
            elif isinstance(node, ast.ImportFrom):
                used.update([*(node.module or "").split("."), *(a.name for a in node.names)])
        new = {c.path for c in self.source if c.before is None} & used
        return sorted(new) or self._unasked(used & set(chain(*map(_new_names, self.source))))

    def _unasked(self, names: Collection[str]) -> list[str]:
        """Return the names that the patch brings and the issue does not mention, sorted."""
        return sorted(n for n in names if self.names.brought(n) and not self.names.in_issue(n))

    def _reads_source(self, node: ast.AST) -> bool:
        """Whether a node asks for code objects, the file or text of source, a document, or git."""
        name = getattr(node, "attr", getattr(node, "id", ""))
        asks = name in _OF_SOURCE or (isinstance(node, ast.Attribute) and name == "__file__")
        first = node.elts[:1] if isinstance(node, ast.List | ast.Tuple) else []
        git = any(isinstance(one, ast.Constant) and one.value == "git" for one in first)
        document = isinstance(node, ast.Constant) and any(
            str(node.value).endswith(c.path.rpartition("/")[2])
            for c in self.source
            if c.path.lower().endswith(_PROSE[1:])
        )
        return git or document or (asks and not self.names.in_issue(name))

    def _opens_source(self, function: ast.AST) -> bool:
        """Whether a test opens a file that the patch changes, by its whole path."""
        paths = tuple(c.path for c in self.source if c.before is not None)
        nodes = list(ast.walk(function))
        names = {getattr(node, "attr", getattr(node, "id", "")) for node in nodes}
        texts = (str(node.value) for node in nodes if isinstance(node, ast.Constant))
        return not names.isdisjoint(_OPENS) and any(text.endswith(paths) for text in texts)

    def _why_other(self, text: str, name: str) -> str:
        source = list(filter(_is_unrecorded, self.source))
        bodies = (body for _, body, title in _tests_of(text) if title.strip("'\"`") == name)
        body = next(bodies, text)
        exports = {name for change in source for name in _exports(change)}
        asked = [name for name in self._unasked(exports) if _uses(name, text, body)]
        if asked:
            return f"it uses {listed(asked)}, which the issue does not speak of"
        read = [c.path for c in source if _looks_at(c, body)]
        return f"it looks at the source of {read[0]} and not at what it does" if read else ""


def _holds(file: FileChange, place: str, name: str) -> bool:
    """Whether a test of an id is in the file. Go names the folder of a test and not its file."""
    if place.endswith(file.path):
        return True
    in_folder = file.path.endswith(".go") and str(PurePosixPath(file.path).parent) == place
    return in_folder and f"func {name.partition('/')[0]}(" in _text(file.after)


def _shared(tree: ast.AST) -> Iterator[ast.stmt]:
    for node in getattr(tree, "body", ()):
        if not getattr(node, "name", "").lower().startswith("test"):
            yield node


def _new_names(change: FileChange) -> set[str]:
    """Return what a Python file binds newly at its top, and its own name if it is new."""
    if not change.path.endswith(".py"):
        return set()
    own = set(change.path.removesuffix(".py").split("/")) if change.before is None else set()
    return own | (_bound(change.after) - _bound(change.before))


def _bound(data: bytes | None) -> set[str]:
    names: set[str] = set()
    for part in getattr(tree_of(data), "body", ()):
        if isinstance(part, (*_FUNCTIONS, ast.ClassDef)):
            names.add(part.name)
            continue
        stored = (n for n in ast.walk(part) if isinstance(n, ast.Name))
        names.update(node.id for node in stored if isinstance(node.ctx, ast.Store))
        names.update(alias.asname or alias.name for alias in getattr(part, "names", ()))
    return names


def _is_difference(node: ast.AST) -> bool:
    match node:
        case ast.Assert(test=ast.Compare(left=left, ops=[ast.NotEq()], comparators=[right])):
            return isinstance(left, ast.Constant) or isinstance(right, ast.Constant)
        case ast.Call(func=ast.Attribute(attr="assertNotEqual"), args=args):
            return any(isinstance(arg, ast.Constant) for arg in args[:2])
    return False


_OF_SOURCE = frozenset(
    {"__code__", "__doc__", "__annotations__", "signature", "getsource", "getsourcelines"}
)
_OPENS = ("open", "read_text", "read_bytes")
_PROSE = (".txt", ".md", ".rst", ".adoc")  # text may be data


def _is_prose(change: FileChange) -> bool:
    """Whether a change is one of documentation, comments or the layout of code."""
    if language_of(change.path) == "python" and change.before is not None:
        return _without_docstrings(change.before) == _without_docstrings(change.after)
    if _is_unrecorded(change):
        return _code(change.before) == _code(change.after)
    return change.path.lower().endswith(_PROSE)


def _without_docstrings(data: bytes | None) -> str:
    tree = tree_of(data)
    for node in ast.walk(tree):
        body = getattr(node, "body", ())
        for part in body if isinstance(body, list) else ():
            if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant):
                part.value.value = ""
    return ast.dump(tree)


# ------------------------------------------- languages whose tests are neither traced nor replayed

_SCRIPTS = frozenset({"javascript", "typescript", "tsx"})
_TOKEN = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`",
    re.DOTALL,
)
_ITEM = re.compile(
    r"\b(?:function\*?|func(?:\s*\([^)]*\))?|fn|class|struct|enum|trait)\s+(\w+)"
    r"|\b(?:const|let|var)\s+(\w+)\s*=\s*(?:async\s*)?(?:function\b|\([^)]*\)\s*=>|\w+\s*=>)"
)
_EXPORTED = re.compile(
    r"\bexports\s*=\s*\{([^}]*)\}|\bexport\s*\{([^}]*)\}|[\w$]\.(?!exports\s*=)(\w+)\s*=(?![=>])"
    r"|\bexport\s+(?:default\s+)?(?:async\s+)?(?:function\*?|class|const|let|var)\s+(\w+)"
)
_READS = re.compile(r"[rR]ead|\b[oO]pen\(|[sS]tat(?:Sync)?\(|\bFiles?[.(]|include_|metadata\(")


def _code(data: bytes | None) -> str:
    text = _TOKEN.sub(lambda token: " " if token["comment"] else token[0], _text(data))
    return "".join(text.split())


def _exports(change: FileChange) -> Iterator[str]:
    """Yield the names that a JavaScript file exports, and the properties that it sets."""
    if language_of(change.path) in _SCRIPTS:
        for groups in _EXPORTED.findall(_text(change.after)):
            for item in ",".join(groups).split(","):  # `name`, `name: value` or `name as other`
                yield from re.findall(r"\w+", item.partition(":")[0])[-1:]


def _uses(name: str, text: str, body: str) -> bool:
    """Whether a test uses an exported name: as a property, in a string, or imported by its name."""
    if re.search(rf"\.\s*{name}(?!\w)|['\"`]{name}['\"`]", body):
        return True
    word = rf"(?<!\w){name}(?!\w)"
    imported = rf"\{{[^}}]*{word}[^}}]*\}}\s*(?:=\s*(?:await\s*)?(?:require|import)|from\b)"
    return re.search(imported, text) is not None and re.search(word, body) is not None


def _looks_at(change: FileChange, body: str) -> bool:
    """Whether a test reads a source file, or looks at a function or class of it by its text."""
    file = re.escape(change.path.rpartition("/")[2])
    if _READS.search(body) and re.search(rf"(?<!\w){file}", body):
        return True
    groups = chain.from_iterable(_ITEM.findall(_text(change.after)))
    return any(_as_text(item, body) for item in sorted(set(filter(None, groups))))


def _as_text(item: str, body: str) -> bool:
    """Whether a test looks at a function or class itself: its text, name, parameters or members."""
    name = rf"(?:\w+\.)*(?<!\w){item}"
    members = r"(?:Annotation|Constructor|Field|Method|Modifier|Num|In\b|Out\b)"
    if re.search(rf"{name}\.class\.\w*{members}|\.TypeOf\(&?{name}\b[^\n]*\.{members}", body):
        return re.search(r"\.(?:invoke|newInstance|Call)\(", body) is None
    text = (
        rf"{name}\.(?:toString\(\)|length\b|name\b)|\b(?:String|inspect)\({name}\)|\$\{{{name}\}}"
        rf"|{name}\s*\+\s*['\"`]|['\"`]\s*\+\s*{name}(?![\w(.])"
    )
    return re.search(text, body) is not None


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
_NOT_RECORDED = frozenset({*_SCRIPTS, "go", "rust", "java"})


def asks_for_runner(source: Sequence[FileChange]) -> str:
    """Return where code newly asks for its runner, as a phrase after `the patch`, or ""."""
    asked = ((c.path, _added(_ASKS, c)) for c in source if _is_unrecorded(c))
    return next((f"asks for its test runner ({path}: {new})" for path, new in asked if new), "")


def _is_unrecorded(change: FileChange) -> bool:
    return language_of(change.path) in _NOT_RECORDED


def _added(pattern: re.Pattern[str], change: FileChange) -> str:
    """Return the first match that the file has more often than before, or ""."""
    before, after = (
        Counter(match[0] for match in pattern.finditer(_text(data)))
        for data in (change.before, change.after)
    )
    return min((match.strip() for match in after - before), default="")
