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


def _tree_of(data: bytes | None) -> ast.AST:
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

    name: str
    code: str
    assertions: int
    skipped: bool


def find_losses(tests: Sequence[FileChange], source: Sequence[FileChange] = ()) -> str:
    """Return what the patch takes away from existing tests, as a phrase after `the patch`, or "".

    A test that is renamed or moved is not lost. Of `source`, only Rust files hold tests.
    """
    changes = [*tests, *(change for change in source if language_of(change.path) == "rust")]
    before = [unit for change in changes for unit in _units(change.path, change.before)]
    after = [unit for change in changes for unit in _units(change.path, change.after)]
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


def _units(path: str, data: bytes | None) -> Iterator[_Unit]:
    if language_of(path) != "python":
        text = _text(data)
        for start, body, name in _tests_of(text):
            skipped = _OFF.search(text[max(0, start - 80) : start] + body) is not None
            code = f"{skipped} {' '.join(body.replace(name, '', 1).split())}"
            yield _Unit(name, code, len(_ASSERTS.findall(body)), skipped)
        return
    for name, node in _functions(_tree_of(data)):
        calls = [n.func for n in ast.walk(node) if isinstance(n, ast.Call)]
        marks = " ".join(map(ast.unparse, node.decorator_list))
        skipped = _SKIPS.search(f"{marks} {' '.join(map(ast.unparse, calls))}") is not None
        code = f"{marks} {ast.dump(ast.Module(node.body, []))}"
        yield _Unit(name, code, sum(map(_is_assertion, ast.walk(node))), skipped)


def edited_inside(changes: Sequence[FileChange]) -> frozenset[str]:
    """Return the names of existing tests inside Rust source files that the patch changes."""
    names: set[str] = set()
    for change in changes:
        if language_of(change.path) == "rust":
            after = {body.strip() for _, body, _ in _tests_of(_text(change.after))}
            tests = _tests_of(_text(change.before))
            names.update(name for _, body, name in tests if body.strip() not in after)
    return frozenset(names)


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, _Function]]:
    """Yield the functions and methods with their dotted names."""
    for node in getattr(tree, "body", ()):
        if isinstance(node, _FUNCTIONS):
            yield f"{prefix}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If | ast.Try):
            yield from _functions(node, prefix)


def _is_assertion(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        values = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
        return not any(isinstance(v, ast.Constant) and bool(v.value) for v in values)
    if not isinstance(node, ast.Call):
        return False
    name = str(getattr(node.func, "attr", getattr(node.func, "id", ""))).lower().lstrip("_")
    constant = bool(node.args) and all(isinstance(a, ast.Constant) for a in node.args)
    return name.startswith(("assert", "raises", "warns", "fail", "expect")) and not constant


def _tests_of(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the offset, text and name of each test; its text reaches to the next test."""
    tests = list(_TEST.finditer(text))
    ends = [*(match.start() for match in tests[1:]), len(text)]
    for match, end in zip(tests, ends, strict=False):
        yield match.start(), text[match.start() : end], next(filter(None, match.groups()), "")


# ------------------------------------------------------------------------------------ weak tests

_OF_SOURCE = frozenset(
    {"__code__", "__doc__", "__annotations__", "signature", "getsource", "getsourcelines"}
)
_OPENS = ("open", "read_text", "read_bytes")
_PROSE = (".txt", ".md", ".rst", ".adoc")  # text may be data


@dataclass(frozen=True, slots=True)
class TestReader:
    """Reads the tests of one patch, `files`, beside the patch's `source`."""

    __test__ = False  # not a test class

    files: Sequence[FileChange]
    source: Sequence[FileChange]
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
        tree, dotted = _tree_of(file.after), name.partition("[")[0].replace("::", ".")
        function = next((node for one, node in _functions(tree) if one == dotted), None)
        if function is None:
            return ""
        body = getattr(tree, "body", ())
        shared = [n for n in body if not getattr(n, "name", "").lower().startswith("test")]
        asked = self._asked([*shared, *function.body])
        if asked:
            return f"it asks for {listed(asked)}, which the issue does not speak of"
        if self._reads_source(list(ast.walk(function))):
            return "it reads the source and not what it does"
        assertions = [node for node in ast.walk(function) if _is_assertion(node)]
        if assertions and all(map(_is_difference, assertions)):
            return "it asserts only what the result is not"
        return ""

    def _asked(self, body: Sequence[ast.stmt]) -> list[str]:
        """Return the names that the patch brings, as attributes, imports or strings of a test."""
        used: set[str] = set()
        for node in chain.from_iterable(map(ast.walk, body)):
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

    def _reads_source(self, nodes: Sequence[ast.AST]) -> bool:
        """Whether a test asks for code objects, the text of source, a changed document, or git."""
        names = {getattr(node, "attr", getattr(node, "id", "")) for node in nodes}
        texts = {str(node.value) for node in nodes if isinstance(node, ast.Constant)}
        attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        asked = (names & _OF_SOURCE) | (attributes & {"__file__"})
        paths = tuple(c.path for c in self.source if c.before is not None)
        documents = (c.path for c in self.source if c.path.lower().endswith(_PROSE[1:]))
        endings = tuple(path.rpartition("/")[2] for path in documents)
        return (
            any(not self.names.in_issue(name) for name in asked)
            or any(text.endswith(endings) for text in texts)
            or (not names.isdisjoint(_OPENS) and any(text.endswith(paths) for text in texts))
            or any(isinstance(n, ast.List | ast.Tuple) and _is_git(n.elts[:1]) for n in nodes)
        )

    def _why_other(self, text: str, name: str) -> str:
        source = list(filter(_is_unrecorded, self.source))
        bodies = (body for _, body, title in _tests_of(text) if title.strip("'\"`") == name)
        body = next(bodies, text)
        asked = [
            n for n in self._unasked(set(chain(*map(_exports, source)))) if _uses(n, text, body)
        ]
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


def _new_names(change: FileChange) -> set[str]:
    """Return what a Python file binds newly at its top, and its own name if it is new."""
    if not change.path.endswith(".py"):
        return set()
    own = set(change.path.removesuffix(".py").split("/")) if change.before is None else set()
    return own | (_bound(change.after) - _bound(change.before))


def _bound(data: bytes | None) -> set[str]:
    names: set[str] = set()
    for part in getattr(_tree_of(data), "body", ()):
        if isinstance(part, (*_FUNCTIONS, ast.ClassDef)):
            names.add(part.name)
            continue
        stored = (n for n in ast.walk(part) if isinstance(n, ast.Name))
        names.update(node.id for node in stored if isinstance(node.ctx, ast.Store))
        names.update(alias.asname or alias.name for alias in getattr(part, "names", ()))
    return names


def _is_git(first: Sequence[ast.expr]) -> bool:
    return any(isinstance(one, ast.Constant) and one.value == "git" for one in first)


def _is_difference(node: ast.AST) -> bool:
    match node:
        case ast.Assert(test=ast.Compare(left=left, ops=[ast.NotEq()], comparators=[right])):
            return isinstance(left, ast.Constant) or isinstance(right, ast.Constant)
        case ast.Call(func=ast.Attribute(attr="assertNotEqual"), args=args):
            return any(isinstance(arg, ast.Constant) for arg in args[:2])
    return False


def _is_prose(change: FileChange) -> bool:
    """Whether a change is one of documentation, comments or the layout of code."""
    if language_of(change.path) == "python" and change.before is not None:
        return _without_docstrings(change.before) == _without_docstrings(change.after)
    if _is_unrecorded(change):
        return _code(change.before) == _code(change.after)
    return change.path.lower().endswith(_PROSE)


def _without_docstrings(data: bytes | None) -> str:
    tree = _tree_of(data)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""
    return ast.dump(tree)


# ------------------------------------------- languages whose tests are neither traced nor replayed

_SCRIPTS = frozenset({"javascript", "typescript", "tsx"})
_NOT_RECORDED = frozenset({*_SCRIPTS, "go", "rust", "java"})
_COMMENT_OR_TEXT = re.compile(
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

# A test looks at a function or class itself: its text, name, parameters or members.
_LOOKS = (
    r"ITEM\.(?:toString\(\)|length\b|name\b)|\b(?:String|inspect)\(ITEM\)|\$\{ITEM\}"
    r"|ITEM\s*\+\s*['\"`]|['\"`]\s*\+\s*ITEM(?![\w(.])|ITEM\.class\.\w*MEMBERS"
    r"|\.TypeOf\(&?ITEM\b[^\n]*\.MEMBERS"
).replace("MEMBERS", r"(?:Annotation|Constructor|Field|Method|Modifier|Num|In\b|Out\b)")

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


def _is_unrecorded(change: FileChange) -> bool:
    return language_of(change.path) in _NOT_RECORDED


def _code(data: bytes | None) -> str:
    text = _COMMENT_OR_TEXT.sub(lambda m: " " if m["comment"] else m[0], _text(data))
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
    items = "|".join(sorted({a or b for a, b in _ITEM.findall(_text(change.after))}))
    looks = _LOOKS.replace("ITEM", rf"(?:\w+\.)*(?<!\w)(?:{items})")
    return bool(items) and re.search(looks, body) is not None


def asks_for_runner(source: Sequence[FileChange]) -> str:
    """Return where code newly asks for its runner, as a phrase after `the patch`, or ""."""
    for change in filter(_is_unrecorded, source):
        before, after = (
            Counter(match[0].strip() for match in _ASKS.finditer(_text(data)))
            for data in (change.before, change.after)
        )
        if new := sorted(after - before):
            return f"asks for its test runner ({change.path}: {new[0]})"
    return ""
