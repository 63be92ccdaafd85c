"""The runners of JavaScript and TypeScript, found behind the scripts of a package.json.

Scripts are read and followed, never run: the runner that one starts is run itself, with the options
of the script and single files. Only a script that starts no known runner is run as it is (`npm`).
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import PurePosixPath

from agent.repository import is_test_path, is_vendored_path, language_of
from agent.types import BAD_OUTCOMES, Outcome, TestRun
from agent.types.protocols import Snapshot
from agent.verify.reports import (
    ParsedOutput,
    collected,
    entries,
    json_object,
    make_tool_run,
    text_of,
)
from agent.verify.runners.base import (
    INSIDE,
    RunContext,
    Runner,
    Suite,
    as_argument,
    below,
    collecting,
    joined,
    tool_command,
    with_variables,
)
from agent.verify.runners.python import read_command
from sandbox import Command, RunResult

_LANGUAGES = ("javascript", "typescript", "tsx")
_SCRIPT_LANGUAGES = (*_LANGUAGES, "vue", "svelte")

# --------------------------------------------------------------------- the scripts of a package

# The runners by the program that starts each; those that come first are preferred in a guess.
_PROGRAMS = {
    **{name: name for name in ("vitest", "jest", "mocha", "ava", "jasmine", "tap")},
    **{"ts-mocha": "mocha", "react-scripts": "jest", "borp": "node-test"},
    **dict.fromkeys(("tape", "uvu"), "script"),
}

# What runs a file of JavaScript, and the options of node that stand for it.
_NODES: Mapping[str, tuple[str, ...]] = {
    "node": (),
    "tsx": ("--import", "tsx"),
    "ts-node": ("--require", "ts-node/register"),
    "babel-node": ("--require", "@babel/register"),
}

# Scripts may call each other in a circle.
_MOST_SCRIPTS = 6

# npm writes it into a new package, which has no tests.
_NO_TESTS = "no test specified"

# Other scripts for tests, where `test` starts no known runner.
_TEST_SCRIPT = re.compile(
    r"(?:unit|tests?|specs?|mocha|jest|vitest|ava|tap|jasmine)\b"
    r"(?!.*(?:e2e|browser|karma|watch|cov|types?$|lint|bench|dist|bun|deno|update))"
)
_PACKAGE_MANAGERS = frozenset({"npm", "pnpm", "yarn", "bun"})
_MANY_SCRIPTS = frozenset({"npm-run-all", "npm-run-all2", "run-s", "run-p"})

# They run scripts of other packages: each of these is looked at for itself.
_ELSEWHERE = re.compile(
    r"-r|-ws?|-F|-C|--recursive|--workspaces?(?:=.*)?|--filter(?:=.*)?|--prefix|workspaces?"
)

# Programs that make what tests then import or run.
_BUILDS = re.compile(
    r"tsc|vue-tsc|tsgo|babel|swc|esbuild|rollup|tsup|tsdown|unbuild|webpack|pkgroll|microbundle|bunchee"
    r"|cp|cpy|copyfiles|rm|rimraf|del-cli|mkdir|mkdirp|shx|peggy|pegjs|jison|buble|coffee"
)

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.ASCII | re.DOTALL)

# Characters that only a shell could expand.
_UNSETTLED = re.compile(r"[$`*?~]")

_OPERATORS = frozenset("();<>|&")

# Options that take the next word as their value although it may look like a file.
_WITH_VALUE = re.compile(
    r"-[crtp]|--(?:config|dir|env|experimental-loader|extension|import|loader|outputFile|projects?"
    r"|reporters?|require|root|rootDir|roots|setupFiles|spec|test-reporter(?:-destination)?"
    r"|testEnvironment|testPathPatterns?|timeout|ui|helper|node-arguments|tsconfig|ignore|exclude)"
)
_MOCHA_WITH_VALUE = re.compile(r"-[ORfgjnsu]|--(?:fgrep|grep|jobs|retries|slow|file)")

# Options without a value, after which a word is a file.
_WITHOUT_VALUE = re.compile(
    r"-\w|--(?:no-.*|ci|run\w*|watch\w*|coverage|bail|verbose|silent|exit|recursive|serial|check-\w+"
    r"|colors?|runInBand|passWithNoTests|globals|expose-gc|inspect\S*|test|test-only|sort|esm"
    r"|experimental-(?!loader)\S+|enable-source-maps|full-trace|inline-diffs|allow-\S+|forbid-\S+)"
)

# Options that do not terminate, that measure, or that redirect the report.
_DROPPED = re.compile(
    r"--(?:watch\w*|(?:no-|check-|disable-|allow-empty-)?cov(?:erage)?\S*|reporters?\S*|json|verbose"
    r"|outputFile\S*|silent|notify|parallel|updateSnapshot|update|ci|bail\S*|test-reporter\S*|ui"
    r"|experimental-test-coverage|run|100|onlyChanged|tap|fail-fast|jobs)(?:=.*)?|-[wubORvoJj]"
)

# Options of node that NODE_OPTIONS may hold too (node's manual, "NODE_OPTIONS").
_FOR_ALL_NODES = re.compile(
    r"--(?:experimental-[\w-]+|import|require|loader|conditions|no-warnings|max-old-space-size"
    r"|enable-source-maps|openssl-legacy-provider|preserve-symlinks|stack-trace-limit)(?:=.*)?|-[rC]"
)

# Names in `Suite.settings`: files and patterns that the script names, node's options, the program
# in the place of the runner's own, what builds the tests, and where the build puts which folder.
_FILES, _PATTERNS, _NODE, _PROGRAM = "files", "patterns", "node-options", "program"
_BUILD, _OUT, _FROM = "build", "built-into", "built-from"

AS_IS = "as-is"
"""In `Suite.settings`: the user named the command, which runs the files that it names itself."""

# No colours in messages, no watching, no prompts.
_ENVIRONMENT = {"CI": "true", "FORCE_COLOR": "0", "NO_COLOR": "1", "npm_config_offline": "true"}


@dataclass(frozen=True, slots=True)
class _Package:
    """A package.json with the paths below its folder."""

    folder: str
    table: Mapping[str, object] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    snapshot: Snapshot | None = None

    @property
    def scripts(self) -> dict[str, str]:
        table = self.table.get("scripts")
        pairs = table.items() if isinstance(table, dict) else ()
        return {name: value.strip() for name, value in pairs if isinstance(value, str)}

    def text(self, path: str) -> str:
        """Return a file of the package, "" where it has none."""
        path = joined(self.folder, path.removeprefix("./"))
        held = self.snapshot is not None and path in self.snapshot.files
        return self.snapshot.text(path) if held and self.snapshot else ""

    def declares(self, name: str) -> bool:
        """Whether the package, or one above it, needs this package."""
        assert self.snapshot is not None
        for up in (self.folder, *map(str, PurePosixPath(self.folder).parents)):
            table = _read(self.snapshot, up) or {}
            for key in ("devDependencies", "dependencies", "peerDependencies"):
                needed = table.get(key)
                if isinstance(needed, dict) and name in needed:
                    return True
        return False

    def is_path(self, word: str) -> bool:
        """Whether a word of a command names files of the package."""
        start = word.removeprefix("./").split("/")[0]
        return bool(re.search(r"[/*.]", word)) or any(
            path == start or path.startswith(f"{start}/") for path in self.paths
        )


def _read(snapshot: Snapshot, folder: str) -> dict[str, object] | None:
    path = joined(folder, "package.json")
    return json_object(snapshot.text(path)) if path in snapshot.files else None


def _package(snapshot: Snapshot, folder: str) -> _Package:
    paths = (below(folder, path) for path in snapshot.files if not is_vendored_path(path))
    return _Package(folder, _read(snapshot, folder) or {}, tuple(filter(None, paths)), snapshot)


def _detect(snapshot: Snapshot, changed: Sequence[str]) -> Suite | None:
    """Return the suite of the package that holds the change, else that nearest to the root."""
    files = (path for path in snapshot.files if PurePosixPath(path).name == "package.json")
    folders = {
        str(PurePosixPath(path).parent)
        for path in files
        if not (is_vendored_path(path) or is_test_path(path))
    }
    near = Counter[str]()
    for path in changed:
        above = map(str, PurePosixPath(path).parents)
        nearest = next((folder for folder in above if folder in folders), None)
        if nearest is not None:
            near[nearest] += 1 if is_test_path(path) else len(changed) + 1
    best = [folder for folder, _ in sorted(near.items(), key=lambda item: (-item[1], item[0]))]
    holding = [up for folder in best for up in (folder, *map(str, PurePosixPath(folder).parents))]
    others = sorted(folders, key=lambda f: (len(PurePosixPath(f).parts), f))
    for group in (holding, others):
        group = [folder for folder in dict.fromkeys(group) if folder in folders]
        suites = [*filter(None, (_suite(_package(snapshot, folder)) for folder in group))]
        if suites:
            return min(suites, key=lambda suite: suite.runner == "npm")  # the first of equals
    return None


def suite_of_command_line(snapshot: Snapshot, argv: Sequence[str]) -> Suite | None:
    """Return the suite of the user's own command if it starts a known runner."""
    text = argv[-1] if argv[:2] == ("/bin/sh", "-c") else shlex.join(argv)
    package = _package(snapshot, ".")
    commands = list(_followed(text, package.scripts))
    suite = _suite_of_commands(package, commands)
    if suite is None:
        return None
    settings = {**suite.settings, AS_IS: "yes"}
    return replace(suite, why=f"--test-cmd runs {suite.runner}", settings=settings)


def _suite(package: _Package) -> Suite | None:
    scripts = package.scripts
    text = scripts.get("test", "")
    names = sorted(filter(_TEST_SCRIPT.match, scripts), key=lambda name: (name != "test", name))
    for name in names:
        commands = list(_followed(f"npm run {name}", scripts))
        suite = None if _NO_TESTS in scripts[name] else _suite_of_commands(package, commands)
        if suite is not None:
            return suite
    if not text or _NO_TESTS in text:
        return None
    return _guess(package) or Suite(
        "npm",
        f"{joined(package.folder, 'package.json')} has a script for its tests",
        ("npm", "test", "--silent"),
        package.folder,
        _ENVIRONMENT,
    )


def _guess(package: _Package) -> Suite | None:
    """Return the runner that a script hides which starts a program of the project's own."""
    words = {word for command in _followed("npm test", package.scripts) for word in command}
    programs = "\n".join(package.text(word) for word in sorted(words))
    top = "\n".join(path for path in package.paths if path.count("/") <= 1)
    for name in (name for name, runner in _PROGRAMS.items() if name == runner):
        config = re.search(rf"^(?:.*/)?\.?{name}(?:rc\b|\.config\b|\.json$)", top, re.MULTILINE)
        if (config or re.search(rf"\b_?{name}\b", programs)) and package.declares(name):
            path = joined(package.folder, "package.json")
            options = ("--timeout", "60000") if name == "mocha" else ()
            why = f"{name} is among the packages of {path}, whose script starts another program"
            return _made(package, name, why, options, ())
    return None


def _followed(
    text: str, scripts: Mapping[str, str], left: int = _MOST_SCRIPTS
) -> Iterator[list[str]]:
    """Yield the simple commands of a shell line, with those of the scripts that it calls."""
    for words in _commands(text):
        names, more = _called(words, scripts)
        if names is None:
            yield words
        for name in names or () if left else ():
            for part in (f"pre{name}", name):
                inner = list(_followed(scripts.get(part, ""), scripts, left - 1))
                if part == name and inner:
                    inner[-1] = [*inner[-1], *more]
                yield from inner


def _called(
    words: Sequence[str], scripts: Mapping[str, str]
) -> tuple[list[str] | None, Sequence[str]]:
    """Return the scripts that a command calls, with the words for them; None for no caller."""
    rest = list(words)
    while rest and (_ASSIGNMENT.fullmatch(rest[0]) or rest[0] in ("cross-env", "env", "npx")):
        del rest[0]
    program, rest = (rest[0], rest[1:]) if rest else ("", [])
    if program in _MANY_SCRIPTS:
        patterns = [_glob(word.replace(":", "/")) for word in rest if not word.startswith("-")]
        return [
            name
            for pattern in patterns
            for name in scripts
            if pattern.fullmatch(name.replace(":", "/"))
        ], ()
    if program in ("turbo", "lerna", "nx", "wireit", "rush"):
        return [], ()
    if program not in _PACKAGE_MANAGERS or not rest:
        return None, ()
    if any(_ELSEWHERE.fullmatch(word) for word in rest):
        return [], ()
    bare = [n for n, word in enumerate(rest) if not word.startswith("-")]
    if bare and rest[bare[0]] in ("run", "run-script"):
        del bare[0]
    name = rest[bare[0]] if bare else ""
    name = "test" if name in ("t", "tst") else name
    if name not in scripts:
        return None, ()
    more = rest[bare[0] + 1 :]
    if program == "npm":
        more = more[more.index("--") + 1 :] if "--" in more else []
    return [name], [word for word in more if word != "--"]


def _commands(text: str) -> list[list[str]]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    commands: list[list[str]] = [[]]
    try:
        for word in lexer:
            if word and _OPERATORS.issuperset(word):
                commands.append([])
            else:
                commands[-1].append(word)
    except ValueError:
        return []
    return [command for command in commands if command]


def _suite_of_commands(package: _Package, commands: Sequence[list[str]]) -> Suite | None:
    """Return the suite of the first command that starts a known runner, else a file of tests."""
    for of_command in (_suite_of_command, _suite_of_file):
        for number, words in enumerate(commands):
            suite = of_command(package, words)
            if suite is not None:
                return _with_build(package, suite, commands[:number])
    return None


def _suite_of_command(package: _Package, words: Sequence[str]) -> Suite | None:
    """Read a simple command that starts a known runner, after any other words."""
    programs = [_program(word) for word in words]
    node = next((n for n, name in enumerate(programs) if name in _NODES), len(words))
    first = next((n for n, name in enumerate(programs) if name in _PROGRAMS), len(words))
    if first < len(words):
        program, rest, before = programs[first], words[first + 1 :], words[node + 1 : first]
        if program == "react-scripts" and rest[:1] != ["test"]:
            return None
        name = _PROGRAMS[program]
        options, files = _split(package, rest, name)
    elif "--test" in words[node + 1 :]:
        program, name, options = "", "node-test", ()
        given = [word for word in words[node + 1 :] if word != "--test"]
        more, files = _split(package, given, name)
        before = [*_NODES[programs[node]], *more]
    else:
        return None
    settings = {_NODE: shlex.join(before)} if before else {}
    if program in ("ts-mocha", "react-scripts"):
        settings[_PROGRAM] = "react-scripts test" if program == "react-scripts" else program
    if program in ("tape", "uvu", "borp"):
        pairs = pairwise(options)
        loaded = [word for pair in pairs if pair[0] in ("-r", "--require") for word in pair]
        settings, options = {_NODE: shlex.join(loaded)} if loaded else {}, ()
        files = files[:1] if program == "uvu" else files
    why = f"{joined(package.folder, 'package.json')} runs {program or 'node --test'} for its tests"
    suite = _made(package, name, why, options, files)
    environment = dict(word.split("=", 1) for word in words[: min(node, first)] if _is_set(word))
    return replace(suite, environment=environment, settings={**suite.settings, **settings})


def _suite_of_file(package: _Package, words: Sequence[str]) -> Suite | None:
    """Read `node test/index.js`: each test file is a program of its own."""
    programs = [_program(word) for word in words]
    node = next((n for n, name in enumerate(programs) if name in _NODES), len(words))
    before, files = _split(package, words[node + 1 :], "node-test")
    if not files or not is_test_path(files[0]):
        return None
    why = f"{joined(package.folder, 'package.json')} runs {files[0]} for its tests"
    suite = _made(package, "script", why, (), files[:1])
    options = shlex.join((*_NODES[programs[node]], *before))
    environment = dict(word.split("=", 1) for word in words[:node] if _is_set(word))
    return replace(suite, environment=environment, settings={**suite.settings, _NODE: options})


def _is_set(word: str) -> bool:
    return _ASSIGNMENT.fullmatch(word) is not None


def _program(word: str) -> str:
    """Return the runner that a word starts: `jest`, `.bin/jest` and `jest/bin/jest.js` are jest."""
    pure = PurePosixPath(word)
    if "/" in word and not {"bin", ".bin", "node_modules"} & {*pure.parts}:
        return ""
    name = re.sub(r"\.[mc]?js$", "", pure.name).lstrip("_")
    return name if name in _PROGRAMS or name in _NODES else ""


def _split(
    package: _Package, words: Sequence[str], runner: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split into the options to keep and the files, without words that a shell would expand."""
    patterns = (_WITH_VALUE, _MOCHA_WITH_VALUE) if runner == "mocha" else (_WITH_VALUE,)
    options: list[str] = []
    files: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("-"):
            takes = any(pattern.fullmatch(word) for pattern in patterns)
            unknown = "=" not in word and not _WITHOUT_VALUE.fullmatch(word)
            has_value = bool(rest) and not rest[0].startswith("-")
            if has_value and (takes or (unknown and not package.is_path(rest[0]))):
                value = [rest.pop(0)]
            else:
                value = []
            if word == "--spec":  # of mocha: the same as a file
                files += value
                continue
            style = runner == "mocha" and word in ("-u", "--ui")  # elsewhere it writes snapshots
            if style or not _DROPPED.fullmatch(word):
                options += [word, *value]
        elif word not in ("run", "related", "test") or package.is_path(word):  # else a command
            files.append(word)
    settled = tuple(word for word in options if not _UNSETTLED.search(word))
    return settled, tuple(word for word in files if not word.startswith("$"))


# ------------------------------------------------------------------ which files, and built where

# Where a runner's configuration says which files it takes: arrays of patterns, read as text.
_CONFIGURED = re.compile(
    r"[\"']?\b(?:include|testMatch|spec|files|specs?_files)[\"']?\s*:\s*"
    r"(\[[^\]]*\]|[\"'][^\"']+[\"']|(?:\n\s*-\s+\S+)+)"
)
_QUOTED = re.compile(r"[\"']([^\"'\n]+)[\"']|-\s+(\S+)")
_CONFIGURATIONS = {
    "vitest": r"vite(?:st)?\.config\.\w+",
    "jest": r"jest\.config\.\w+",
    "mocha": r"\.mocharc(?:\.\w+)?",
    "ava": r"ava\.config\.\w+",
    "jasmine": r"(?:spec/support/)?jasmine\.(?:json|m?js)",
    "tap": r"\.taprc",
}


def _made(
    package: _Package, runner: str, why: str, options: Sequence[str], files: Sequence[str]
) -> Suite:
    settings = {_FILES: shlex.join(files)}
    patterns = [*files] or _configured(package, runner)
    expressions = [*map(_glob, patterns)]
    if any(e.fullmatch(path) for path in package.paths for e in expressions):
        settings[_PATTERNS] = shlex.join(patterns)
    return Suite(runner, why, tuple(options), package.folder, settings=settings)


def _configured(package: _Package, runner: str) -> list[str]:
    section = package.table.get(runner)
    texts = [json.dumps(section)] if isinstance(section, dict) else []
    name = re.compile(_CONFIGURATIONS.get(runner, r"\0"))
    texts += [package.text(path) for path in package.paths if name.fullmatch(path)]
    start = "spec/" if runner == "jasmine" else ""
    return [
        start + (quoted or listed).removeprefix("<rootDir>/")
        for text in texts
        for value in _CONFIGURED.findall(text)
        for quoted, listed in _QUOTED.findall(value)
        if re.match(r"[^!]*(?:test|spec)", quoted or listed)  # not what coverage includes
    ]


def _glob(pattern: str) -> re.Pattern[str]:
    """Translate a glob; a folder stands for all that is in it."""
    parts = re.split(
        r"(\*\*/?|\*|\?\([^)]*\)|[?*+@]?\([^)]*\)|\?|\{[^}]*\})", pattern.removeprefix("./")
    )
    text = ""
    for part in parts:
        if part.startswith("**"):
            text += r"(?:.*/)?" if part.endswith("/") else ".*"
        elif part == "*":
            text += "[^/]*"
        elif part == "?":
            text += "[^/]"
        elif part.startswith("{"):
            text += f"(?:{'|'.join(map(re.escape, part[1:-1].split(',')))})"
        elif "(" in part and part.endswith(")"):
            inner = part[part.index("(") + 1 : -1].split("|")
            sign = "" if part[0] in "(@" else part[0]
            text += f"(?:{'|'.join(map(re.escape, inner))}){sign}"
        else:
            text += re.escape(part)
    return re.compile(f"{text.rstrip('/')}(?:/.*)?")


def _with_build(package: _Package, suite: Suite, before: Sequence[list[str]]) -> Suite:
    """Return the suite with what a script builds before it starts the runner."""
    steps = [words for words in before if _is_build(words)]
    if not steps:
        return suite
    settings = {**suite.settings, _BUILD: " && ".join(map(_quoted, steps))}
    words = [word for step in steps for word in step]
    config = next((b for a, b in pairwise(words) if a in ("-p", "--project")), "")
    config = config if config.endswith(".json") else joined(config or ".", "tsconfig.json")
    options = _compiler_options(package.text(config))
    given = next((b for a, b in pairwise(words) if a == "--outDir"), "")
    out = str(PurePosixPath(given or text_of(options.get("outDir")) or "."))
    files = [str(PurePosixPath(word)) for word in shlex.split(settings.get(_FILES, ""))]
    if out != "." and any(file == out or file.startswith(f"{out}/") for file in files):
        source = text_of(options.get("rootDir")) or _common_folder(package, config)
        settings |= {_OUT: out, _FROM: str(PurePosixPath(source))}
    return replace(suite, settings=settings)


def _is_build(words: Sequence[str]) -> bool:
    names = [PurePosixPath(word).name for word in words if not _is_set(word)]
    names = [name for name in names if name not in ("npx", "cross-env")]
    return bool(names) and _BUILDS.fullmatch(names[0]) is not None and "--noEmit" not in words


def _quoted(words: Sequence[str]) -> str:
    """Return a command for a shell, in which patterns stay patterns."""
    plain = re.compile(r"[\w@%+=:,./*?{}-]+")
    return " ".join(word if plain.fullmatch(word) else shlex.quote(word) for word in words)


def _tsconfig(text: str) -> Mapping[str, object]:
    plain = re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', r"\1", text, flags=re.DOTALL)
    return json_object(re.sub(r",(\s*[}\]])", r"\1", plain)) or {}


def _compiler_options(text: str) -> Mapping[str, object]:
    options = _tsconfig(text).get("compilerOptions")
    return options if isinstance(options, dict) else {}


def _common_folder(package: _Package, config: str) -> str:
    """Return the folder that the compiler takes for the root: the longest that holds all files."""
    included = _tsconfig(package.text(config)).get("include")
    patterns = (
        [*map(_glob, filter(None, map(text_of, included)))] if isinstance(included, list) else []
    )
    files = [
        PurePosixPath(path)
        for path in package.paths
        if language_of(path) in ("typescript", "tsx")
        and not path.endswith(".d.ts")
        and (any(p.fullmatch(path) for p in patterns) if patterns else True)
    ]
    folder = files[0].parent if files else PurePosixPath()
    while not all(file.is_relative_to(folder) for file in files):
        folder = folder.parent
    return str(folder)


def collects(suite: Suite, path: str) -> bool:
    """Whether the suite names the files that it takes and a path is one of them."""
    inside = below(suite.cwd, path)
    patterns = shlex.split(suite.settings.get(_PATTERNS, ""))
    return inside is not None and any(
        _glob(pattern).fullmatch(_built(suite, inside)) for pattern in patterns
    )


def _built(suite: Suite, path: str) -> str:
    inside = below(suite.settings.get(_FROM, "."), path)
    if _OUT not in suite.settings or inside is None:
        return path
    name = re.sub(r"\.([cm]?)tsx?$", r".\1js", inside)
    return joined(suite.settings[_OUT], name)


def _source(suite: Suite, path: str) -> str:
    inside = below(suite.settings.get(_OUT, "\0"), path)
    if inside is None:
        return path
    return joined(suite.settings[_FROM], re.sub(r"\.([cm]?)js$", r".\1ts", inside))


def _files(suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
    """Return the files of the package; of the existing ones, those that the suite would take."""
    chosen: list[str] = []
    for path in paths:
        inside = below(suite.cwd, path)
        if inside is None or language_of(path) not in _LANGUAGES:
            continue
        if _PATTERNS not in suite.settings or not snapshot.exists(path) or collects(suite, path):
            chosen.append(as_argument(_built(suite, inside)))
    return tuple(dict.fromkeys(chosen))


# ------------------------------------------------------------------------------------ commands

# Written into the private copy by the runner, and read from there when it has ended.
_REPORT = ".patchshot-report.json"

_ROOT = "PATCHSHOT_ROOT"

_TAP = {
    **dict.fromkeys(("TAP_COVERAGE", "TAP_CHECK_COVERAGE"), "0"),
    **dict.fromkeys(("TAP_DISABLE_COVERAGE", "TAP_ALLOW_EMPTY_COVERAGE"), "1"),
}


def _words(suite: Suite, setting: str) -> tuple[str, ...]:
    return tuple(shlex.split(suite.settings.get(setting, "")))


def _run(
    suite: Suite,
    targets: Sequence[str],
    context: RunContext,
    *,
    program: tuple[str, ...],
    reporting: tuple[str, ...] = (),
    files: tuple[str, ...] = (),
    each: bool = False,
) -> Command:
    """Run a program of `node_modules/.bin`; with `each`, every file by itself."""
    report = str(PurePosixPath(context.root, suite.cwd, _REPORT))
    options = [word.replace("{}", report) for word in reporting]
    program = _words(suite, _PROGRAM) or program
    argv = (*program, *suite.argv, *options)
    place = f"./{_REPORT}" if reporting else "-"
    words = targets or _words(suite, _FILES)
    if each and words and not any(map(_UNSETTLED.search, words)):
        wrapped = collecting("each", (shlex.join(argv), *words), place)
    elif each:
        wrapped = collecting("each", (f"exec {shlex.join((*argv, *words))} #", "."), place)
    else:
        wrapped = collecting("files", (*argv, *(files if targets else ()), *words), place)
    return _tool(suite, wrapped, context)


def _run_mocha(suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
    """Run mocha with its own configuration but for the files that this names."""
    options = ("--reporter", "json", "--reporter-option", "output={}")
    given = iter(suite.argv)
    config = [next(given, "") for word in given if word == "--config"]
    own = tuple(word for word in suite.argv if word not in ("--config", *config))
    if targets:
        own = (*own, "--no-package", "--config", str(INSIDE / "patchshot_mocharc.js"))
        suite = replace(suite, argv=own)
    command = _run(suite, targets, context, program=("mocha",), reporting=options, each=True)
    return with_variables(command, {"PATCHSHOT_MOCHARC": config[0]} if config else {})


def _run_node(suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
    reporter = f"--test-reporter={INSIDE / 'patchshot_node.mjs'}"
    options = ("--test", reporter, "--test-reporter-destination=stdout")
    files = targets or _words(suite, _FILES)
    node = context.tools.toolchain.program("node")
    argv = (node, *_words(suite, _NODE), *options, *files)
    return _tool(
        replace(suite, settings={**suite.settings, _NODE: ""}), collecting("own", argv), context
    )


def _run_script(suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
    node = context.tools.toolchain.program("node")
    program = (node, *_words(suite, _NODE))
    plain = replace(suite, settings={**suite.settings, _NODE: ""})
    return _run(plain, targets, context, program=program, each=True)


def _tool(suite: Suite, argv: Sequence[str], context: RunContext) -> Command:
    folder = PurePosixPath(context.root, suite.cwd)
    inside = [folder, *(up for up in folder.parents if up.is_relative_to(context.root))]
    folders = [f"{up}/node_modules/.bin" for up in inside]
    own = {**_ENVIRONMENT, **_TAP, _ROOT: str(context.root)}
    own["PATCHSHOT_REPORT"] = str(folder / _REPORT)
    build = suite.settings.get(_BUILD)
    options = _for_all_nodes(_words(suite, _NODE))
    own |= {"PATCHSHOT_BUILD": build} if build else {}
    own |= {"NODE_OPTIONS": " ".join(options)} if options else {}
    return tool_command(argv, suite, context, environment=own, folders=folders)


def _for_all_nodes(words: Iterable[str]) -> list[str]:
    options: list[str] = []
    rest = iter(words)
    for word in rest:
        takes = re.fullmatch(
            r"--(?:import|require|loader|experimental-loader|conditions)|-[rC]", word
        )
        value = [next(rest, "")] if takes else []
        options += [word, *value] if _FOR_ALL_NODES.fullmatch(word) else []
    return options


def _run_npm(suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
    return tool_command(suite.argv, suite, context)


# ------------------------------------------------------------------------------------- reports

_OUTCOMES = {
    **{"passed": Outcome.PASSED, "passes": Outcome.PASSED},
    **{"failed": Outcome.FAILED, "failures": Outcome.FAILED},
    **dict.fromkeys(("pending", "skipped", "todo", "disabled", "excluded"), Outcome.SKIPPED),
}

BUILD_STEP = "package.json::the build step"
"""The end of the id of what a script builds before it starts the runner."""

_Reader = Callable[[ParsedOutput, Suite, Command, str, bytes], None]


def _read_with(reader: _Reader, suite: Suite, command: Command, result: RunResult) -> TestRun:
    """Read each report. A program that fails and blames no test fails as a whole."""
    parsed = ParsedOutput()
    parsed.complete = True
    for name, content in collected(result.report):
        file, _, code = name.partition("\t")
        path = _path(suite, command, file) if file not in ("", ".", _REPORT) else ""
        if file == "":
            failed = code != "0"
            text = content.decode("utf-8", "replace")
            build = joined(suite.cwd, BUILD_STEP)
            parsed.outcomes[build] = Outcome.ERROR if failed else Outcome.PASSED
            parsed.failures |= {build: text} if failed else {}
            continue
        before = dict(parsed.outcomes)
        reader(parsed, suite, command, path, content)
        new = {k: v for k, v in parsed.outcomes.items() if before.get(k) is not v}
        blames = any(outcome in BAD_OUTCOMES for outcome in new.values())
        if suite.runner == "tap" and new:  # it fails for want of coverage too
            blames = True
        if path and code not in ("", "0") and not blames:
            output = result.stderr.decode("utf-8", "replace")
            parsed.add(path, Outcome.ERROR, content.decode("utf-8", "replace").strip() or output)
        elif path and code == "0" and not new:
            parsed.add(path, Outcome.PASSED)
    return make_tool_run(command, result, parsed)


def _jest(parsed: ParsedOutput, suite: Suite, command: Command, path: str, content: bytes) -> None:
    report = json_object(content) or {}
    parsed.begun = parsed.begun or isinstance(report.get("testResults"), list)
    parsed.complete = parsed.complete and report.get("wasInterrupted") is not True
    for file in entries(report.get("testResults")):
        place = _path(suite, command, text_of(file.get("name"))) or path
        tests = entries(file.get("assertionResults"))
        for test in tests:
            outcome = _OUTCOMES.get(text_of(test.get("status")))
            if outcome is not None:
                title = " > ".join((*_texts(test, "ancestorTitles"), text_of(test.get("title"))))
                messages = "\n".join(_texts(test, "failureMessages"))
                parsed.add(f"{place}::{title}", outcome, messages)
        failed = any(test.get("status") == "failed" for test in tests)
        if file.get("status") == "failed" and not failed:
            parsed.add(place, Outcome.ERROR, text_of(file.get("message")))


def _texts(test: Mapping[str, object], name: str) -> Iterator[str]:
    values = test.get(name)
    return filter(None, map(text_of, values if isinstance(values, list) else ()))


def _mocha(parsed: ParsedOutput, suite: Suite, command: Command, path: str, content: bytes) -> None:
    report = json_object(content) or {}
    is_report = isinstance(report.get("tests"), list)
    parsed.begun = parsed.begun or is_report
    for kind in ("passes", "pending", "failures") if is_report else ():
        for test in entries(report.get(kind)):
            error = test.get("err")
            text = text_of(error.get("stack")) if isinstance(error, dict) else ""
            place = _path(suite, command, text_of(test.get("file"))) or path
            title = text_of(test.get("fullTitle"))
            parsed.add(f"{place}::{title}" if place else title, _OUTCOMES[kind], text)


# A line of the Test Anything Protocol (version 14): a result, or the name of what follows.
_RESULT = re.compile(
    r"( *)(not )?ok\b(?: \d+)?(?: -)? ?(.*?)(?: # (SKIP|TODO)\b.*| # time=.*)?(?: \{)?",
    re.IGNORECASE,
)
_SUBTEST = re.compile(r"( *)# (Subtest: )?(.*)")
_TOTALS = re.compile(r"(?:tests|pass|fail|skip|todo|failed|time=?|ok)\b.*")


def _tap(parsed: ParsedOutput, suite: Suite, command: Command, path: str, content: bytes) -> None:
    above: dict[int, str] = {}
    summed: set[tuple[str, ...]] = set()
    text: list[str] = []
    lines = content.decode("utf-8", "replace").split("\n")
    for number, line in enumerate(lines):
        name = _SUBTEST.fullmatch(line)
        if name is not None and not _TOTALS.fullmatch(name[3]):
            indent = len(name[1]) - (not name[2])  # tape names a test without indenting it
            above = {n: title for n, title in above.items() if n < indent} | {indent: name[3]}
        match = _RESULT.fullmatch(line)
        if match is None:
            continue
        indent, title = len(match[1]), match[3].strip()
        names = (*(above[n] for n in sorted(above) if n < indent), title)
        if names in summed and not match[2]:
            continue
        summed.update(names[:n] for n in range(1, len(names)))
        outcome = Outcome.FAILED if match[2] else Outcome.PASSED
        outcome = Outcome.SKIPPED if match[4] else outcome
        text = _diagnosis(lines, number + 1) if match[2] else []
        inner = [one for one in names if one and joined(suite.cwd, one) != path]
        if names in summed and outcome is Outcome.FAILED:
            continue
        parsed.add(f"{path}::{' > '.join(inner)}" if inner else path, outcome, "\n".join(text))


def _diagnosis(lines: Sequence[str], start: int) -> list[str]:
    text: list[str] = []
    for line in lines[start : start + 80]:
        if line.strip() == "..." or _RESULT.fullmatch(line):
            break
        text.append(line)
    return text


def _node(parsed: ParsedOutput, suite: Suite, command: Command, path: str, content: bytes) -> None:
    parsed.complete = False
    for raw in content.splitlines():
        line = json_object(raw) or {}
        parsed.begun = parsed.begun or line.get("event") == "begin"
        parsed.complete = line.get("event") == "finish"
        outcome = _OUTCOMES.get(text_of(line.get("outcome")))
        if line.get("event") == "result" and outcome is not None:
            file, colons, name = text_of(line.get("id")).partition("::")
            whole = not colons and outcome is Outcome.FAILED
            test = f"{_path(suite, command, file)}{colons}{name}"
            parsed.add(test, Outcome.ERROR if whole else outcome, text_of(line.get("text")))


def _path(suite: Suite, command: Command, file: str) -> str:
    """Return the path in the tree of the source of a test file, which may be absolute."""
    root, pure = command.environment.get(_ROOT, "/"), PurePosixPath(file)
    if not file:
        return ""
    if pure.is_absolute():
        if not pure.is_relative_to(root):
            return file
        inside = below(suite.cwd, str(pure.relative_to(root)))
        if inside is None:
            return str(pure.relative_to(root))
        file = inside
    return joined(suite.cwd, _source(suite, file.removeprefix("./")))


def _row(
    name: str,
    command: Callable[[Suite, Sequence[str], RunContext], Command],
    reader: _Reader,
    detect: Callable[[Snapshot, Sequence[str]], Suite | None] = lambda *_: None,
) -> Runner:
    """Return a runner that a script of package.json starts; it is one of the project's packages."""
    return Runner(
        name=name,
        languages=_SCRIPT_LANGUAGES,
        detect=detect,
        needs=("node",),
        targets=_files,
        command=command,
        read=partial(_read_with, reader),
    )


_VITEST = ("--reporter=default", "--reporter=json", "--outputFile.json={}")
_JEST = ("--json", "--outputFile={}", "--ci", "--silent=false", "--watchman=false")
_JASMINE = (f"--helper={INSIDE / 'patchshot_jasmine.cjs'}",)

JAVASCRIPT_RUNNERS = (
    _row(
        "vitest",
        partial(_run, program=("vitest", "run"), reporting=_VITEST),
        _jest,
        _detect,  # of all: the script says which
    ),
    _row(
        "jest",
        partial(_run, program=("jest",), reporting=_JEST, files=("--runTestsByPath",)),
        _jest,
    ),
    _row("mocha", _run_mocha, _mocha),
    _row("node-test", _run_node, _node),
    _row("jasmine", partial(_run, program=("jasmine",), reporting=_JASMINE, each=True), _jest),
    _row("ava", partial(_run, program=("ava", "--tap"), each=True), _tap),
    _row("tap", partial(_run, program=("tap", "--reporter=tap"), each=True), _tap),
    _row("script", _run_script, _tap),
    Runner(
        name="npm",  # scripts that start an unknown runner
        languages=_SCRIPT_LANGUAGES,
        needs=("npm", "node"),
        command=_run_npm,
        read=read_command,
        selects=False,
    ),
)
