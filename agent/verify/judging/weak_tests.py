"""Finds, by reading, why a reply's test shows nothing of the issue although it passes newly. Pure.

A test can fail on the base and pass with the patch for a reason that is the patch's own choice:

- it asks whether a name exists that the patch brings and the issue does not speak of;
- it asserts only what a result is not, or that it is less or more than a constant;
- it looks at output, the patch has a module begin to write some, and the issue does not say so;
- it reads the text of the source (what a trace shows for Python).

The plain forms are found. What is not found counts as evidence.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from agent.repository import language_of
from agent.types import FileChange
from agent.verify.judging.edited_tests import is_assertion, text_of_test
from agent.verify.judging.tricks import tree_of
from agent.verify.judging.wording import listed

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.Lambda)


@dataclass(frozen=True, slots=True)
class TestReader:
    """Reads the tests of one patch, `files`, beside the patch's `source` and the issue's text.

    `failures` are the reports of the tests on the base. `brought`: does the source add the name?
    `in_issue`: does the issue mention it?
    """

    __test__ = False  # not a test class

    files: Sequence[FileChange]
    source: Sequence[FileChange]
    issue: str
    failures: Mapping[str, str]
    brought: Callable[[str], bool]
    in_issue: Callable[[str], bool]

    def why_weak(self, test: str) -> str:
        """Return why a test that passes newly is no evidence, as a clause, or ""."""
        place, _, name = test.partition("::")
        file = next((one for one in self.files if _holds(one, place, name)), None)
        if file is None:
            return ""
        if language_of(file.path) != "python":
            return self._why_other(_text(file), name.rpartition("::")[2])
        tree = tree_of(file.after)
        function = _function(tree, name.partition("[")[0].split("::"))
        if function is None:
            return ""
        asked = self._asked([*_shared(tree), *function.body])
        if asked:
            return f"it asks for {listed(asked)}, which the issue does not speak of"
        failed_assertion = _ASSERTION_FAILED.search(self.failures.get(test, "")) is not None
        if failed_assertion and not _SPEAKS_OF_LIMITS.search(self.issue) and _is_weak(function):
            return "it asserts only what the result is not, or a limit"
        if self._is_about_output(function):
            return "it looks at output that the patch adds, which the issue does not speak of"
        return ""

    def _asked(self, body: Sequence[ast.stmt]) -> list[str]:
        """Return the new names whose absence the statements provide for."""
        wanted = {name for part in body for name in _provided_for(part)}
        new = {name for change in self.source for name in _bound_names(change)}
        return sorted(n for n in wanted & new if self.brought(n) and not self.in_issue(n))

    def _is_about_output(self, function: ast.AST) -> bool:
        if _SPEAKS_OF_OUTPUT.search(self.issue) or not _READS_OUTPUT.search(ast.unparse(function)):
            return False
        texts = [(c.before or b"", c.after or b"") for c in self.source if c.path.endswith(".py")]
        return any(_WRITES.search(new) and not _WRITES.search(old) for old, new in texts)

    def _why_other(self, text: str, name: str) -> str:
        """Judge a test in a language whose tests are not traced."""
        spoken = [c for c in self.source if language_of(c.path) in _COMMENTED]
        if spoken == list(self.source) and all(
            _code(change.before) == _code(change.after) for change in spoken
        ):
            return "the patch changes nothing but comments"
        body = text_of_test(text, name)
        new = {name for change in spoken for name in _exports(change) if self.brought(name)}
        uses = (n for n in sorted(new) if not self.in_issue(n) and _uses(n, text, body))
        asked = list(uses)
        if asked:
            return f"it uses {listed(asked)}, which the issue does not speak of"
        read = [c.path for c in spoken if _reads_text(c, body)]
        return f"it looks at the source of {read[0]} and not at what it does" if read else ""


def _holds(file: FileChange, place: str, name: str) -> bool:
    """Whether a test of an id is in the file. Go names the folder of a test and not its file."""
    if place.endswith(file.path):
        return True
    folder = str(PurePosixPath(file.path).parent)
    function = name.partition("/")[0]  # without the names of its parts
    return file.path.endswith(".go") and folder == place and f"func {function}(" in _text(file)


def _text(change: FileChange) -> str:
    return (change.after or b"").decode("utf-8", "replace")


# ------------------------------------------------------------------------------- parts of a test


def _function(tree: ast.AST, names: Sequence[str]) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the test function of an id, None if the file does not have it (a base class)."""
    for node in getattr(tree, "body", ()):
        if getattr(node, "name", "") == names[0]:
            if len(names) > 1:
                return _function(node, names[1:])
            return node if isinstance(node, _FUNCTIONS) else None
    return None


def _shared(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a module beside its tests."""
    for node in getattr(tree, "body", ()):
        if not getattr(node, "name", "").lower().startswith("test"):
            yield node


# ------------------------------------------------------------------------ names that are asked for

_MISSING = re.compile(r"ImportError|ModuleNotFound|Attribute|NameError|TypeError|Exception|Lookup")


def _provided_for(part: ast.stmt) -> Iterator[str]:
    """Yield names that may be absent: strings, and what is used where that failure is caught."""
    for node in ast.walk(part):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from node.value.split(".")
        elif (isinstance(node, ast.Try) and any(map(_catches_absence, node.handlers))) or (
            isinstance(node, ast.With) and _suppresses(node)
        ):
            yield from _used(node.body)


def _suppresses(node: ast.With) -> bool:
    return any("suppress(" in ast.unparse(item.context_expr) for item in node.items)


def _catches_absence(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or _MISSING.search(ast.unparse(handler.type)) is not None


def _used(body: Sequence[ast.stmt]) -> Iterator[str]:
    for node in (node for part in body for node in ast.walk(part)):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            for name in (*names, getattr(node, "module", None) or ""):
                yield from name.split(".")


def _bound_names(change: FileChange) -> Iterator[str]:
    """Yield what a Python file binds for others to see, and its own name if it is new."""
    if not change.path.endswith(".py"):
        return
    if change.before is None:
        yield from change.path.removesuffix(".py").split("/")
    tree = tree_of(change.after)
    for node in ast.walk(tree):
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Global):
            yield from node.names
    for node in _outside_functions(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _SCOPES):
            yield child
            yield from _outside_functions(child)


# --------------------------------------------------------------------------------- weak assertions

_ASSERTION_FAILED = re.compile(r"AssertionError|^E?\s*assert\b", re.MULTILINE)
_SPEAKS_OF_LIMITS = re.compile(
    r"\b(?:less|fewer|greater|more|larger|smaller|bigger|longer|shorter|higher|lower) than\b"
    r"|at (?:least|most)\b|exceed|negative|positive|non-?zero|empty|differ|distinct|unique|never"
    r"|\bnot be\b|[!<>]=|limit|maxim|minim|slow|fast|\btime|memory|performance|size"
    r"|quadratic|exponential|complexity|hang|denial",
    re.IGNORECASE,
)
_ORDER = (ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
# Without sets: they are compared by what they contain (`{"a"} <= found`).
_LITERAL = (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.UnaryOp, ast.unaryop, ast.Load)
_WEAK_METHODS = frozenset(
    {"assertNotEqual", "assertLess", "assertLessEqual", "assertGreater", "assertGreaterEqual"}
)

_DISTANCES = frozenset({"abs", "fabs", "norm", "dist", "hypot"})


def _is_weak(function: ast.AST) -> bool:
    """Whether a test asserts something, and nothing but inequalities with constants."""
    found = [node for node in ast.walk(function) if is_assertion(node)]
    return bool(found) and all(map(_is_weak_assertion, found))


def _is_weak_assertion(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        return _is_inequality(node.test)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        weak = node.func.attr in _WEAK_METHODS and any(map(_is_constant, node.args[:2]))
        return weak and not any(map(_is_distance, node.args[:2]))
    return False


def _is_inequality(value: ast.expr) -> bool:
    match value:
        case ast.BoolOp(op=ast.And(), values=values):
            return all(map(_is_inequality, values))
        case ast.BoolOp(values=values):
            return any(map(_is_inequality, values))
        case ast.UnaryOp(op=ast.Not(), operand=ast.Compare(ops=[ast.Eq()]) as inner):
            return any(map(_is_constant, (inner.left, *inner.comparators)))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if isinstance(op, _ORDER):
            distance = _is_distance(left) or _is_distance(right)
            return (_is_constant(left) or _is_constant(right)) and not distance
    return False


def _is_distance(value: ast.expr) -> bool:
    """Whether an expression is how far two values are apart: `abs(total() - 180) < 1e-9`."""
    called = [node.func for node in ast.walk(value) if isinstance(node, ast.Call)]
    names = {getattr(f, "id", None) or getattr(f, "attr", None) for f in called}
    return not names.isdisjoint(_DISTANCES)


def _is_constant(value: ast.expr) -> bool:
    return all(isinstance(node, _LITERAL) for node in ast.walk(value))


# ------------------------------------------------------------------------------------------ output

_READS_OUTPUT = re.compile(
    r"\b(?:capsys|capfd)\w*|\bcaplog\b|\brecwarn\b|redirect_std(?:out|err)|assertLogs|assertWarns"
    r"|\bwarns\(|catch_warnings|sys\.std(?:out|err)\b|capture_output|check_output"
)
_WRITES = re.compile(
    rb"(?<![\w.])print\(|\bstd(?:out|err)\.write|\bwarnings?\.warn\(|(?<![\w.])warn\("
    rb"|\blog(?:ger|ging)?\.\w+\(|\becho\("
)
_SPEAKS_OF_OUTPUT = re.compile(
    r"print|output|stdout|stderr|display|\bshow|\blog|warn|messag|consol|\bwrit|terminal|echo"
    r"|deprecat|emit|silent|verbos|report|notif",
    re.IGNORECASE,
)

# ---------------------------------------------------------------------------------- other languages

_SCRIPTS = frozenset({"javascript", "typescript", "tsx"})
_COMMENTED = _SCRIPTS | {"go", "rust", "java"}
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
_READS = re.compile(
    r"[rR]ead_?(?:File|to_string|AllLines|String|Stream)|include_(?:str|bytes)!"
    r"|\bos\.(?:Open|Stat)\(|\bnew (?:[\w.]+\.)?File\(|\bFiles\.(?:size|lines)\(|\bstat(?:Sync)?\("
    r"|\bfs::(?:metadata|read)\("
)


def _code(data: bytes | None) -> str:
    """Return code without comments and blanks."""

    def kept(token: re.Match[str]) -> str:
        return " " if token["comment"] else token[0]

    return "".join(_TOKEN.sub(kept, (data or b"").decode("utf-8", "replace")).split())


def _exports(change: FileChange) -> Iterator[str]:
    """Yield the names that a JavaScript file exports, and the properties that it sets."""
    if language_of(change.path) in _SCRIPTS:
        for groups in _EXPORTED.findall(_text(change)):
            for item in ",".join(groups).split(","):  # `name`, `name: value` or `name as other`
                yield from re.findall(r"\w+", item.partition(":")[0])[-1:]


def _uses(name: str, text: str, body: str) -> bool:
    """Whether a test uses an exported name: as a property, in a string, or imported by its name."""
    if re.search(rf"\.\s*{name}(?!\w)|['\"`]{name}['\"`]", body):
        return True
    imported = (
        rf"\{{[^}}]*(?<!\w){name}(?!\w)[^}}]*\}}\s*(?:=\s*(?:await\s*)?(?:require|import)|from\b)"
    )
    return (
        re.search(imported, text) is not None
        and re.search(rf"(?<!\w){name}(?!\w)", body) is not None
    )


def _reads_text(change: FileChange, body: str) -> bool:
    """Whether a test reads a source file, or turns a function of it into text."""
    name = re.escape(change.path.rpartition("/")[2])
    if _READS.search(body) and re.search(rf"(?<!\w){name}", body):
        return True
    functions = set(
        filter(None, (group for found in _ITEM.findall(_text(change)) for group in found))
    )
    return any(_as_text(function, body) for function in sorted(functions))


def _as_text(function: str, body: str) -> bool:
    """Whether a test looks at a function or class itself: its text, name, parameters or members."""
    name = rf"(?:\w+\.)*(?<!\w){function}"
    members = r"(?:Annotation|Constructor|Field|Method|Modifier|Num|In\b|Out\b)"
    if re.search(rf"{name}\.class\.\w*{members}|\.TypeOf\(&?{name}\b[^\n]*\.{members}", body):
        return re.search(r"\.(?:invoke|newInstance|Call)\(", body) is None
    return bool(
        re.search(rf"{name}\.(?:toString\(\)|length\b|name\b)|\b(?:String|inspect)\({name}\)", body)
        or re.search(rf"\$\{{{name}\}}|{name}\s*\+\s*['\"`]|['\"`]\s*\+\s*{name}(?![\w(.])", body)
    )
