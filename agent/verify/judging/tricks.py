"""Finds ways of passing tests without fixing anything, by reading the patch. Pure.

No fix needs objects that equal everything, code that detects tests, or configuration that hides
tests. Only additions of the patch count. The list covers plain cases only; other tricks are not
found.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from agent.patching import parse_python
from agent.repository import language_of
from agent.types import FileChange

_COMPARISONS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__")
_EXITS = ("__exit__", "__aexit__")


@dataclass(frozen=True, slots=True)
class _Sign:
    """A way to detect or reach what tests the code. `unless` in a file makes it ordinary there."""

    pattern: re.Pattern[str]
    words: str
    unless: re.Pattern[str] | None = None


_ASKS = "the code asks for what tests it"
_REACHES = "the code reaches into what runs it"

_OF_PROGRAMS = re.compile(
    r"argparse|optparse|getopt|\bclick\b|\btyper\b|__main__|\bsetup\(|package main\b|fn main\(|^#!"
)

_PYTHON = (
    _Sign(
        re.compile(
            r"\bPYTEST_\w+|SANDBOX_(?:REPORT|JUNIT)|PATCHSHOT_\w+"
            r"|patchshot_(?:pytest|watch|unittest|hook)|\b(?:import|from)\s+_pytest\b"
            r"|['\"]_?pytest['\"]\s+(?:not\s+)?in\s+sys\.modules"
            r"|sys\.modules\s*(?:\.get\(|\[)\s*['\"](?:_?pytest|unittest)"
            r"|\bsys\.modules\b(?=[^\n]{0,80}test)|test[^\n]{0,80}\bin\s+(?:\w+\()?sys\.modules\b"
            r"|(?:find_spec|_{2}import_{2}|import_module)\(\s*['\"](?:_?pytest|unittest)"
            r"|\bdef\s+pytest_\w+|\bTEST_RUNNER\s*=|\bpytest_plugins\s*="
            r"|environ[^\n]{0,40}['\"](?:CI|TEST|TESTING|TOX_\w+|NOX_\w+|COVERAGE\w*)['\"]"
        ),
        _ASKS,
    ),
    _Sign(
        re.compile(
            r"\bsys\.(?:_getframe|_current_frames|gettrace|settrace|setprofile|getprofile|monitoring)"
            r"|\binspect\.(?:stack|currentframe|getouterframes|trace)\b|\.f_back\b|\.tb_frame\b"
            r"|\btraceback\.(?:extract_stack|walk_stack|format_stack)"
        ),
        _ASKS,
    ),
    _Sign(re.compile(r"\bsys\.(?:orig_)?argv\b"), _ASKS, _OF_PROGRAMS),
    _Sign(re.compile(r"/proc/(?:self|1)\b|/\.dockerenv\b"), _ASKS),
    _Sign(
        re.compile(
            r"\bgc\.get_(?:objects|referrers|referents)|\bsys\.(?:meta_path|path_hooks)"
            r"|\bctypes\.pythonapi|\bbuiltins\.\w+\s*=(?!=)|\bsetattr\(\s*(?:builtins|unittest)\b"
            r"|\bunittest\.(?:case\.)?TestCase\.\w+\s*=(?!=)|\b__code__\s*=(?!=)"
            r"|\bfrom\s+unittest\s+import\s+mock\b|\bunittest\.mock\b"
        ),
        _REACHES,
    ),
)
_SCRIPT = (
    _Sign(
        re.compile(
            r"\bJEST_WORKER_ID\b|\bNODE_TEST_CONTEXT\b|\bVITEST\w*\b|\bnpm_lifecycle_\w+"
            r"|\bprocess\.env\.(?:CI|TEST|MOCHA\w*)\b|\btypeof\s+(?:jest|describe|expect|vi)\b"
            r"|NODE_ENV['\"\]]*\s*[!=]==?\s*['\"]test|['\"](?:node:test|vitest|@jest/globals)['\"]"
            r"|new Error\([^)]*\)\.stack|\bprepareStackTrace\b"
        ),
        _ASKS,
    ),
    _Sign(re.compile(r"\bprocess\.(?:argv|execArgv)\b"), _ASKS, re.compile(r"^#!|yargs|commander")),
    _Sign(
        re.compile(
            r"\bassert(?:\.strict)?(?:\.\w+|\[[^\]\n]+\])\s*=(?!=)|defineProperty\(\s*assert\b"
            r"|require\(['\"](?:node:)?assert[^)\n]*\)(?:\.\w+)+\s*=(?!=)"
            r"|Object\.assign\(\s*assert\b"
            r"|\b(?:globalThis|global|window)\.(?:it|test|expect|describe|jest|assert)\b"
            r"|\bexpect\.extend\(|\bModule\._\w+|\brequire\.cache\b|\.prototype\._compile\b"
        ),
        _REACHES,
    ),
)
_SIGNS: Mapping[str, tuple[_Sign, ...]] = MappingProxyType(
    {
        "python": _PYTHON,
        "javascript": _SCRIPT,
        "typescript": _SCRIPT,
        "tsx": _SCRIPT,
        "go": (
            _Sign(re.compile(r"\btesting\.Testing\(\)|\bflag\.Lookup\(|\"\.test\""), _ASKS),
            _Sign(re.compile(r"\bos\.Args\b"), _ASKS, _OF_PROGRAMS),
            _Sign(re.compile(r"\bruntime\.(?:Callers?|Stack)\(|\bdebug\.Stack\("), _ASKS),
            _Sign(re.compile(r"\bos\.Executable\("), _ASKS, _OF_PROGRAMS),
        ),
        "rust": (
            _Sign(
                re.compile(
                    r"\bcfg!\([^\n;{]*\b(?:test|debug_assertions)\b|\bcfg\(not\(test\)\)"
                    r"|\bcfg\((?:not\()?debug_assertions\b|\bRUST_TEST_\w+"
                ),
                _ASKS,
            ),
            _Sign(
                re.compile(r"\benv::args\b|\bthread::current\(\)\s*\.name\("), _ASKS, _OF_PROGRAMS
            ),
        ),
        "java": (
            _Sign(
                re.compile(
                    r"\borg\.(?:junit|testng)\b|\bsurefire\b|sun\.java\.command|\"basedir\""
                    r"|\bforName\(\"[\w.]*Test"
                ),
                _ASKS,
            ),
            _Sign(re.compile(r"\bgetStackTrace\(\)|\bStackWalker\b"), _ASKS),
        ),
    }
)

# What a result may depend on besides the input: patterns of code, and words of an issue about it.
# The first word of a match is shown to the user.
_SURROUNDINGS = (
    (
        re.compile(r"\bos\.(?:environb?|getenvb?)\b"),
        re.compile(r"environ|getenv|[A-Z]+_[A-Z]+|\$[A-Z]"),
    ),
    (
        re.compile(
            r"\bos\.(?:getp?pid|getuid|geteuid|getlogin|ttyname)\b|\.isatty\b|\bplatform\.\w+"
        ),
        re.compile(r"\bpid|process|user|tty|terminal|platform|windows|linux|macos", re.IGNORECASE),
    ),
    (
        re.compile(
            r"\bos\.(?:getcwd|listdir|scandir|stat|lstat|access)\b|\bos\.path\.(?:exists|is\w+|lexists"
            r"|getmtime|expanduser|realpath)\b|\bPath\.(?:cwd|home)\b|\.expanduser\(|\b__file__\b"
            r"|\)\.(?:exists|is_dir|is_file|stat)\("
        ),
        re.compile(r"file|folder|director|path|symlink|cwd|home", re.IGNORECASE),
    ),
    (
        re.compile(
            r"\btime\.(?:time|monotonic|perf_counter|localtime|gmtime)\w*\("
            r"|\bdate(?:time)?\.(?:now|today|utcnow)\("
        ),
        re.compile(r"time|date|day|hour|clock|now|second", re.IGNORECASE),
    ),
    (re.compile(r"\bsocket\.\w+"), re.compile(r"socket|network|port|host|address", re.IGNORECASE)),
    (
        re.compile(r"\brandom\.\w+\(|\burandom\(|\buuid\.\w+\(|\bsecrets\.\w+\("),
        re.compile(r"random|seed|uuid|unique|token|nonce", re.IGNORECASE),
    ),
    (
        re.compile(r"\b(?:eval|exec)\(|\bcodecs\.decode\(|\bb(?:16|32|64|85)decode\("),
        re.compile(r"\beval|\bexec|base\d\d|decod|codec", re.IGNORECASE),
    ),
    (
        re.compile(
            r"\bdef\s+__(?:eq|ne|lt|le|gt|ge|contains|bool)__|__(?:eq|ne|lt|le|gt|ge)__\s*="
            r"|\bmock\.ANY\b"
        ),
        re.compile(r"==|!=|<|>|equal|compar|__\w+__|sort|order|hash|truth|\bin\b", re.IGNORECASE),
    ),
)
_ENCODING = re.compile(rb"\A(?:[^\n]*\n)?[^\n]*coding[:=][ \t]*(?!utf-?8)([\w.-]+)", re.IGNORECASE)

# Options of pytest that leave out tests. Marks on tests show in the runs.
_HIDES = re.compile(
    r"collect_ignore(?:_glob)?\b|--ignore(?:-glob)?\b|--deselect\b"
    r"|pytest_ignore_collect|pytest_collection_modifyitems|pytest_deselected"
)
_HOLDS_OPTIONS = (".py", ".ini", ".toml", ".cfg")


def find_tricks(source: Sequence[FileChange], project: Iterable[str]) -> tuple[str, ...]:
    """Return one sentence for each trick that the patch adds, sorted by path.

    `source` has the changes that could be a fix. `project` has the texts of the base's source
    files. A project that does already what the patch adds may continue to do so.
    """
    changed = [change for change in source if change.after]
    python = [change for change in changed if language_of(change.path) == "python"]
    found = {f"{change.path}: {words}" for change in python for words in _equal(change)}
    signs = dict(_signs(changed))
    for text in project if signs else ():
        for sign in [sign for sign in signs if sign.pattern.search(text)]:
            del signs[sign]
        if not signs:
            break
    found.update(sentence for sentences in signs.values() for sentence in sentences)
    return tuple(sorted(found))


def find_dependences(source: Sequence[FileChange], issue: str) -> tuple[str, ...]:
    """Return what the patched Python files read besides their input, and did not read before.

    Such code may be right only where it is tested. What the text of the issue is about is left out.
    """
    found = set()
    for change in source:
        if change.after is None or language_of(change.path) != "python":
            continue
        before, after = _code(change.before), _code(change.after)
        encoded = _ENCODING.match(change.after)
        if encoded and not _ENCODING.match(change.before or b""):
            found.add(f"{change.path}: the encoding {encoded[1].decode('ascii')}")
        for pattern, words in _SURROUNDINGS:
            new = pattern.search(after)
            if new and not pattern.search(before) and not words.search(issue):
                found.add(f"{change.path}: {new[0].strip('().')}")
    return tuple(sorted(found))


def _signs(changed: Sequence[FileChange]) -> Iterator[tuple[_Sign, list[str]]]:
    """Yield each sign that the patch adds, with its sentences."""
    found: dict[_Sign, list[str]] = {}
    for change in changed:
        for sign in _SIGNS.get(language_of(change.path), ()):
            new = _added(sign.pattern, change)
            ordinary = sign.unless is not None and sign.unless.search(_text(change.after))
            if new and not ordinary:
                found.setdefault(sign, []).append(f"{change.path}: {sign.words} ({new})")
    yield from found.items()


def find_hidden_tests(configuration: Sequence[FileChange]) -> tuple[str, ...]:
    """Return what the patch adds to the configuration that leaves tests out of a full run."""
    found = []
    for change in configuration:
        new = _added(_HIDES, change) if change.path.endswith(_HOLDS_OPTIONS) else ""
        if new:
            found.append(f"{change.path}: takes tests out of the run ({new})")
    return tuple(sorted(found))


def _added(pattern: re.Pattern[str], change: FileChange) -> str:
    """Return the first match that the file has more often than before, or ""."""
    if not pattern.search(_text(change.after)):
        return ""
    python = language_of(change.path) == "python"
    texts = [_code(data) if python else _text(data) for data in (change.before, change.after)]
    before, after = (Counter(pattern.findall(text)) for text in texts)
    return min((found.strip() for found in after - before), default="")


def _code(data: bytes | None) -> str:
    """Return Python code without comments and docstrings, or the text if it cannot be parsed."""
    try:
        tree = parse_python(data or b"")
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list) and body and is_docstring(body[0]):
                body[0] = ast.Pass()
        return ast.unparse(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _text(data)


# -------------------------------------------------------------------- comparisons that always hold


def _equal(change: FileChange) -> Iterator[str]:
    new = Counter(_constant_methods(change.after))
    new.subtract(_constant_methods(change.before))
    for name in sorted(name for name, count in new.items() if count > 0):
        if name.endswith(_EXITS):
            yield f"{name} hides every exception, also that of a failed assertion"
        else:
            yield f"{name} answers the same whatever it is compared with"


def _constant_methods(data: bytes | None) -> Iterator[str]:
    """Yield `Class.__eq__` for each comparison or exit method that always returns a true value."""
    for node in ast.walk(tree_of(data)):
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                name = _always_true(statement)
                if name in (*_COMPARISONS, *_EXITS):
                    yield f"{node.name}.{name}"
        elif isinstance(node, ast.Dict):  # type("Any", (), {"__eq__": lambda ...})
            for key, value in zip(node.keys, node.values, strict=True):
                named = isinstance(key, ast.Constant) and key.value in _COMPARISONS
                if named and isinstance(value, ast.Lambda) and is_true(value.body):
                    yield f"type.{getattr(key, 'value', '')}"
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            attribute, value = node.targets[0].attr, node.value
            if attribute in _COMPARISONS and isinstance(value, ast.Lambda) and is_true(value.body):
                yield ast.unparse(node.targets[0])


def _always_true(statement: ast.stmt) -> str:
    """Return the name that a statement binds to a function which always returns a true value."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        returns = [node for node in ast.walk(statement) if isinstance(node, ast.Return)]
        last = statement.body[-1]
        if isinstance(last, ast.Return) and all(is_true(one.value) for one in returns):
            return statement.name
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Lambda):
        target = statement.targets[0]
        if isinstance(target, ast.Name) and is_true(statement.value.body):
            return target.id
    return ""


def is_docstring(statement: ast.stmt) -> bool:
    """Whether a statement is a constant that nothing uses."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def is_true(value: ast.expr | None) -> bool:
    """Whether an expression is true for all values of its names, in plain cases."""
    match value:
        case ast.Constant():
            return bool(value.value) and value.value is not ...
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(map(is_true, values))
        case ast.BoolOp(op=ast.And(), values=values):
            return all(map(is_true, values))
        case ast.UnaryOp(op=ast.Not(), operand=ast.Constant(value=plain)):
            return not plain
        case ast.IfExp(body=body, orelse=other):
            return is_true(body) and is_true(other)
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
            return ast.dump(left) == ast.dump(right)
        case ast.Call(func=ast.Name(id="bool"), args=[inner]):
            return is_true(inner)
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, ast.Name(id="object")]):
            return True
    return False


def tree_of(data: bytes | None) -> ast.AST:
    """Return the syntax tree, or an empty one for what this Python cannot parse."""
    try:
        return parse_python(data or b"")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")
