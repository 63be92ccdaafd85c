"""What the scripts of a package.json say: which runner, with which options, on which files.

Scripts are read and followed, never run: the runner that one starts is run itself, with the options
of the script and single files. Only a script that starts no known runner is run as it is (`npm`).
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, dropwhile, islice, pairwise
from pathlib import PurePosixPath
from posixpath import commonpath

from agent.repository import is_test_path, is_vendored_path, language_of
from agent.types.protocols import Snapshot
from agent.verify.reports import json_object, text_of
from agent.verify.runners.base import Suite, as_argument, below, joined

_LANGUAGES = ("javascript", "typescript", "tsx")

# The runners by the program that starts each.
_PROGRAMS = {
    **{name: name for name in ("vitest", "jest", "mocha", "ava", "jasmine", "tap")},
    **{"ts-mocha": "ts-mocha", "react-scripts": "react-scripts", "borp": "node-test"},
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

# Scripts that only look at the code: a compiler that one starts builds nothing.
_LINT = re.compile(r"(?:es)?lint\b|fmt\b|format\b|type-?check\b|check-?types\b")

_PACKAGE_MANAGERS = frozenset({"npm", "pnpm", "yarn", "bun"})
_MANY_SCRIPTS = frozenset({"npm-run-all", "npm-run-all2", "run-s", "run-p"})
_PREFIXES = frozenset({"cross-env", "env", "npx"})
_SUBCOMMANDS = frozenset({"run", "related", "test"})

# Programs that make what tests then import or run.
_BUILDS = re.compile(
    r"tsc|vue-tsc|tsgo|babel|swc|esbuild|rollup|tsup|tsdown|unbuild|webpack|pkgroll|microbundle|bunchee"
    r"|cp|cpy|copyfiles|rm|rimraf|del-cli|mkdir|mkdirp|shx|peggy|pegjs|jison|buble|coffee"
    r"|uglifyjs|terser"
)

# Programs of the project that do the same.
_OWN_BUILD = re.compile(
    r"(?:.*/)?(?:es)?(?:build|bundle|compile|generate|transpile|strip)(?!.*test)[^/]*"
)

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.ASCII | re.DOTALL)
_OPERATORS = frozenset("();<>|&")

UNSETTLED = re.compile(r"[$`*?~]")
"""Characters that only a shell could expand."""

# Options that take the next word as their value although it may look like a file.
_WITH_VALUE = re.compile(
    r"-[crtp]|--(?:config|dir|env|experimental-loader|extension|import|loader|outputFile|projects?"
    r"|reporters?|require|root|rootDir|roots|setupFiles|spec|test-reporter(?:-destination)?"
    r"|testEnvironment|testPathPatterns?|helper|file|tsconfig|ignore|exclude)"
)

# Options that do not terminate, that measure, or that redirect the report.
_DROPPED = re.compile(
    r"--(?:watch\w*|(?:no-|check-|disable-|allow-empty-)?cov(?:erage)?\S*|reporters?\S*|json|verbose"
    r"|outputFile\S*|silent|notify|parallel|updateSnapshot|update|ci|bail\S*|test-reporter\S*|ui"
    r"|experimental-test-coverage|run|100|onlyChanged|tap|fail-fast|jobs)(?:=.*)?|-[wubORvoJj]"
)

# Names in `Suite.settings`: files that the script names, those of them that are patterns of files
# of the package, node's options, what builds the tests, and where the build puts which folder.
FILES, NODE, BUILD = "files", "node-options", "build"
_PATTERNS, _OUT, _FROM = "patterns", "built-into", "built-from"

AS_IS = "as-is"
"""In `Suite.settings`: the user named the command, which runs the files that it names itself."""


@dataclass(frozen=True, slots=True)
class _Package:
    """A package.json with the paths below its folder."""

    folder: str
    table: Mapping[str, object]
    paths: tuple[str, ...]
    snapshot: Snapshot

    @property
    def manifest(self) -> str:
        return joined(self.folder, "package.json")

    @property
    def scripts(self) -> Mapping[str, str]:
        texts = _table(self.table.get("scripts")).items()
        return {name: value.strip() for name, value in texts if isinstance(value, str)}

    def text(self, path: str) -> str:
        """Return a file of the package, "" where it has none."""
        path = joined(self.folder, str(PurePosixPath(path)))
        return self.snapshot.text(path) if path in self.snapshot.files else ""

    def needed(self) -> frozenset[str]:
        """Return the names of the packages that it, or a package above it, needs."""
        tables = (_manifest(self.snapshot, str(up)) for up in PurePosixPath(self.manifest).parents)
        keys = ("devDependencies", "dependencies", "peerDependencies")
        return frozenset(
            name for table in tables for key in keys for name in _table(table.get(key))
        )

    def is_path(self, word: str) -> bool:
        """Whether a word of a command names files of the package."""
        start = word.removeprefix("./").split("/")[0]
        return bool(re.search(r"[/*.]", word)) or any(
            path == start or path.startswith(f"{start}/") for path in self.paths
        )


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _manifest(snapshot: Snapshot, folder: str) -> Mapping[str, object]:
    path = joined(folder, "package.json")
    return (json_object(snapshot.text(path)) if path in snapshot.files else None) or {}


def _package(snapshot: Snapshot, folder: str) -> _Package:
    paths = (below(folder, path) for path in snapshot.files if not is_vendored_path(path))
    return _Package(folder, _manifest(snapshot, folder), tuple(filter(None, paths)), snapshot)


def detect_package(snapshot: Snapshot, changed: Sequence[str]) -> Suite | None:
    """Return the suite of the package that holds the change, else that nearest to the root."""
    folders = {
        str(PurePosixPath(path).parent)
        for path in snapshot.files
        if PurePosixPath(path).name == "package.json"
        and not (is_vendored_path(path) or is_test_path(path))
    }
    near = Counter[str]()
    for path in changed:
        above = map(str, PurePosixPath(path).parents)
        for folder in islice((up for up in above if up in folders), 1):
            near[folder] += 1 if is_test_path(path) else len(changed) + 1
    best = sorted(near, key=lambda folder: (-near[folder], folder))
    holding = [up for folder in best for up in (folder, *map(str, PurePosixPath(folder).parents))]
    others = sorted(folders, key=lambda f: (len(PurePosixPath(f).parts), f))
    for group in (holding, others):
        packages = (_package(snapshot, up) for up in dict.fromkeys(group) if up in folders)
        suites = [*filter(None, map(_suite, packages))]
        if suites:
            return min(suites, key=lambda suite: suite.runner == "npm")  # the first of equals
    return None


def suite_of_command_line(snapshot: Snapshot, text: str) -> Suite | None:
    """Return the suite of the user's own command if it starts a known runner."""
    found = _suite_of_line(_package(snapshot, "."), text)
    if found is None:
        return None
    settings = {**found[1].settings, AS_IS: "yes"}
    return replace(found[1], why=f"--test-cmd runs {found[1].runner}", settings=settings)


def _suite(package: _Package) -> Suite | None:
    texts = {name: text for name, text in package.scripts.items() if _NO_TESTS not in text}
    lines = {name: _suite_of_line(package, f"npm run {name}") for name in texts if _is_test(name)}
    suites = [(name != "test", *found, name) for name, found in lines.items() if found]
    if suites:
        return min(suites, key=lambda one: (one[0], one[1], one[3]))[2]
    if not texts.get("test"):
        return None
    why = f"{package.manifest} has a script for its tests"
    npm = Suite("npm", why, ("npm", "test", "--silent"), package.folder, ENVIRONMENT)
    return _guess(package) or npm


def _is_test(script: str) -> bool:
    return _TEST_SCRIPT.match(script) is not None


def _guess(package: _Package) -> Suite | None:
    """Return the runner that a script hides which starts a program of the project's own."""
    words = {word for command in _followed("npm test", package.scripts) for word in command}
    tasks = filter(re.compile(r"(?i:jake|gulp|grunt|make)file(?:\.\w+)?").fullmatch, package.paths)
    programs = "\n".join(package.text(word) for word in sorted({*words, *tasks}))
    top = "\n".join(path for path in package.paths if path.count("/") <= 1)
    needed = package.needed()
    for name in (name for name, runner in _PROGRAMS.items() if name == runner and name in needed):
        config = re.search(rf"^(?:.*/)?\.?{name}(?:rc\b|\.config\b|\.json$)", top, re.MULTILINE)
        call = re.search(rf"\b_?{name}\b((?: +-[\w-]+(?:[ =][\w./]+)?)*)", programs)
        if config or call:
            options, _ = _split(package, (call[1] if call else "").split(), name)
            options += ("--timeout", "60000") if name == "mocha" else ()
            return _made(package, name, f"another program that starts {name}", (), options, (), ())
    return None


ENVIRONMENT = {"CI": "true", "FORCE_COLOR": "0", "NO_COLOR": "1", "npm_config_offline": "true"}
"""No colours in messages, no watching, no prompts."""

# ----------------------------------------------------------------------------- commands of scripts


def _followed(
    text: str, scripts: Mapping[str, str], left: int = _MOST_SCRIPTS
) -> Iterator[list[str]]:
    """Yield the simple commands of a shell line, with those of the scripts that it calls."""
    for words in _commands(text):
        names, more = _called(words, scripts)
        if names is None:
            yield words
        for name in (n for n in names or () if left and not _LINT.match(n)):
            yield from _followed(scripts.get(f"pre{name}", ""), scripts, left - 1)
            inner = list(_followed(scripts[name], scripts, left - 1))
            yield from inner[:-1]
            yield from ([*last, *more] for last in inner[-1:])


def _called(
    words: Sequence[str], scripts: Mapping[str, str]
) -> tuple[list[str] | None, Sequence[str]]:
    """Return the scripts that a command calls, with the words for them; None for no caller."""
    left = list(dropwhile(lambda word: _is_set(word) or word in _PREFIXES, words))
    program, rest = (left[0], left[1:]) if left else ("", [])
    if program in _MANY_SCRIPTS:
        patterns = [_glob(word.replace(":", "/")) for word in rest if not word.startswith("-")]
        return [
            name
            for pattern in patterns
            for name in scripts
            if pattern.fullmatch(name.replace(":", "/"))
        ], ()
    bare = [n for n, word in enumerate(rest) if not word.startswith("-")]
    if bare and rest[bare[0]] in ("run", "run-script"):
        del bare[0]
    name = rest[bare[0]] if bare else ""
    name = "test" if name in ("t", "tst") else name
    if program not in _PACKAGE_MANAGERS or name not in scripts:
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


def _suite_of_line(package: _Package, text: str) -> tuple[int, Suite] | None:
    """Return the suite of a shell line, and 0 if a command starts a runner, 1 if it runs a file."""
    commands = list(_followed(text, package.scripts))
    suites = [
        (kind, number, suite)
        for number, words in enumerate(commands)
        for kind, reader in enumerate((_suite_of_runner, _suite_of_file))
        if (suite := reader(package, words)) is not None
    ]
    if not suites:
        return None
    kind, number, first = min(suites, key=lambda one: one[:2])
    whole = _merged(first, [suite for other, _, suite in suites if other == kind])
    return kind, _with_build(package, whole, commands[:number])


def _merged(first: Suite, suites: Sequence[Suite]) -> Suite:
    """Return the first suite with the files of further commands that start the same."""
    alike = (suite for suite in suites if suite.runner == first.runner)
    same = [suite.settings for suite in alike if suite.argv == first.argv]
    texts = {name: [one.get(name, "") for one in same] for name in (FILES, _PATTERNS)}
    settings = {name: " ".join(dict.fromkeys(text)) for name, text in texts.items() if all(text)}
    return replace(first, settings={**first.settings, **settings})


def _suite_of_runner(package: _Package, words: Sequence[str]) -> Suite | None:
    """Read a simple command that starts a known runner, after any other words."""
    programs = [_program(word) for word in words]
    node = next((n for n, name in enumerate(programs) if name in _NODES), len(words))
    first = next((n for n, name in enumerate(programs) if name in _PROGRAMS), len(words))
    start = min(node, first)
    if first < len(words):
        program = programs[first]
        if program == "react-scripts" and words[first + 1 : first + 2] != ["test"]:
            return None
        options, files = _split(package, words[first + 1 :], program)
        loaded: Sequence[str] = words[node + 1 : first]
        if program in ("tape", "uvu", "borp"):
            pairs = (pair for pair in pairwise(options) if pair[0] in ("-r", "--require"))
            loaded = [*chain.from_iterable(pairs), *({"--expose-gc"} & {*options})]
            options, files = (), files[:1] if program == "uvu" else files
        return _made(package, _PROGRAMS[program], program, words[:start], options, files, loaded)
    if "--test" not in words[node + 1 :]:
        return None
    given = [word for word in words[node + 1 :] if word != "--test"]
    more, files = _split(package, given, "")
    loaded = (*_NODES[programs[node]], *more)
    return _made(package, "node-test", "node --test", words[:start], (), files, loaded)


def _suite_of_file(package: _Package, words: Sequence[str]) -> Suite | None:
    """Read `node test/index.js`: each test file is a program of its own."""
    programs = [_program(word) for word in words]
    node = next((n for n, name in enumerate(programs) if name in _NODES), len(words))
    more, files = _split(package, words[node + 1 :], "")
    if not files or not is_test_path(files[0]):
        return None
    loaded = (*_NODES[programs[node]], *more)
    return _made(package, "script", files[0], words[:node], (), files[:1], loaded)


def _made(
    package: _Package,
    runner: str,
    program: str,
    before: Sequence[str],
    options: Sequence[str],
    files: Sequence[str],
    loaded: Sequence[str],
) -> Suite:
    settings = {FILES: shlex.join(files)}
    patterns = [*files] or _configured(package, runner)
    expressions = [*map(_glob, patterns)]
    if any(e.fullmatch(path) for path in package.paths for e in expressions):
        settings[_PATTERNS] = shlex.join(patterns)
    if loaded:
        settings[NODE] = shlex.join(loaded)
    why = f"{package.manifest} runs {program} for its tests"
    environment = dict(word.split("=", 1) for word in before if _is_set(word))
    return Suite(runner, why, tuple(options), package.folder, environment, settings)


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
    package: _Package, words: Sequence[str], program: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split into the options to keep and the files, without words that a shell would expand."""
    options: list[str] = []
    files: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            if word not in _SUBCOMMANDS or package.is_path(word):
                files.append(word)
            continue
        value: list[str] = []
        may_have = bool(rest) and "=" not in word and not rest[0].startswith("-")
        if may_have and (_WITH_VALUE.fullmatch(word) or not package.is_path(rest[0])):
            value = [rest.pop(0)]
        style = program.endswith("mocha") and word in ("-u", "--ui")  # elsewhere it updates
        if word == "--spec":  # of mocha: the same as a file
            files += value
        elif style or not _DROPPED.fullmatch(word):
            options += [word, *value]
    settled = tuple(word for word in options if not UNSETTLED.search(word))
    return settled, tuple(word for word in files if not word.startswith("$"))


# ------------------------------------------------------------------ which files, and built where

# Where a runner's configuration says which files it takes: arrays of patterns, read as text.
_CONFIGURED = re.compile(
    r"[\"']?\b(?:include|testMatch|spec|files|specs?_files)[\"']?\s*:\s*"
    r"(\[(?:[^\]\"']|\"[^\"\n]*\"|'[^'\n]*')*\]|[\"'][^\"']+[\"']|(?:\n\s*-\s+\S+)+)"
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


def _configured(package: _Package, runner: str) -> list[str]:
    """Return the patterns of test files in the configuration of a runner."""
    name = re.compile(_CONFIGURATIONS.get(runner, r"\0"))
    texts = [json.dumps(_table(package.table.get(runner)))]
    texts += [package.text(path) for path in package.paths if name.fullmatch(path)]
    start = "spec/" if runner == "jasmine" else ""
    return [
        start + (quoted or listed).removeprefix("<rootDir>/")
        for text in texts
        if not re.search(r"\bprojects\b", text)  # some of them may name no files
        for value in _CONFIGURED.findall(text)
        for quoted, listed in _QUOTED.findall(value)
        if re.match(r"[^!]*(?:test|spec)", quoted or listed)  # not what coverage includes
        and re.search(r"[*?{]", quoted or listed)  # nor single files that types are checked of
    ]


_GLOB_PART = re.compile(r"\*\*/?|[?*+@]?\(|[?*{},|)]|\[\w+\]|[^?*+@(){},|\[]+|.", re.DOTALL)
_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _glob(pattern: str) -> re.Pattern[str]:
    """Translate a glob; a folder stands for all that is in it, and one that is none for itself."""
    pattern, text, ends = pattern.removeprefix("./").rstrip("/"), "", list[str]()
    for part in _GLOB_PART.findall(pattern):
        if part[-1] in "({":
            ends.append(f"){part[0]}" if part[0] in "?*+" else ")")
            text += "(?:"
        elif part in (")", "}") and ends:
            text += ends.pop()
        elif part in (",", "|") and ends:
            text += "|"
        else:
            text += _WILDCARDS.get(part) or (
                part if part[1:] and part[0] == "[" else re.escape(part)
            )
    return re.compile(f"{re.escape(pattern) if ends else text}(?:/.*)?")


def _with_build(package: _Package, suite: Suite, before: Sequence[list[str]]) -> Suite:
    """Return the suite with what a script builds before it starts the runner."""
    steps = [words for words in before if _is_build(words)]
    if not steps:
        return suite
    settings = {**suite.settings, BUILD: " && ".join(map(_quoted, steps))}
    pairs = list(pairwise(word for step in steps for word in step))
    config = next((b for a, b in pairs if a in ("-p", "--project")), "")
    config = config if config.endswith(".json") else joined(config or ".", "tsconfig.json")
    table = _tsconfig(package.text(config))
    options = _table(table.get("compilerOptions"))
    given = next((b for a, b in pairs if a == "--outDir"), "")
    out = str(PurePosixPath(given or text_of(options.get("outDir")) or "."))
    files = [PurePosixPath(word) for word in shlex.split(settings[FILES])]
    if out != "." and any(file.is_relative_to(out) for file in files):
        source = text_of(options.get("rootDir")) or _common_folder(package, table.get("include"))
        settings |= {_OUT: out, _FROM: str(PurePosixPath(source))}
    return replace(suite, settings=settings)


def _is_build(words: Sequence[str]) -> bool:
    given = [word for word in words if not _is_set(word) and word not in _PREFIXES]
    name = PurePosixPath(given[0]).name if given else ""
    own = any(_OWN_BUILD.fullmatch(w) for w in given[1:] if not w.startswith("node_modules/"))
    known = _BUILDS.fullmatch(name) is not None and "--noEmit" not in words
    return known or (name in _NODES and own)


def _quoted(words: Sequence[str]) -> str:
    """Return a command for a shell, in which patterns stay patterns."""
    plain = re.compile(r"[\w@%+=:,./*?{}-]+")
    return " ".join(word if plain.fullmatch(word) else shlex.quote(word) for word in words)


def _tsconfig(text: str) -> Mapping[str, object]:
    plain = re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', r"\1", text, flags=re.DOTALL)
    return json_object(re.sub(r",(\s*[}\]])", r"\1", plain)) or {}


def _common_folder(package: _Package, include: object) -> str:
    """Return the folder that the compiler takes for the root: the longest that holds all files."""
    patterns = [_glob(text_of(one)) for one in include] if isinstance(include, list) else []
    files = [
        PurePosixPath(path)
        for path in package.paths
        if language_of(path) in ("typescript", "tsx")
        and not path.endswith(".d.ts")
        and (not patterns or any(p.fullmatch(path) for p in patterns))
    ]
    return commonpath([file.parent for file in files]) if files else "."


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
    return joined(suite.settings[_OUT], re.sub(r"\.([cm]?)tsx?$", r".\1js", inside))


def source_of(suite: Suite, path: str) -> str:
    """Return the file of the package that a test file was built from, or the file itself."""
    inside = below(suite.settings.get(_OUT, "\0"), path)
    if inside is None:
        return path
    return joined(suite.settings[_FROM], re.sub(r"\.([cm]?)js$", r".\1ts", inside))


def test_files(suite: Suite, paths: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
    """Return the files of the package; of the existing ones, those that the suite would take."""
    chosen: list[str] = []
    for path in paths:
        inside = below(suite.cwd, path)
        if inside is None or language_of(path) not in _LANGUAGES:
            continue
        if _PATTERNS not in suite.settings or not snapshot.exists(path) or collects(suite, path):
            chosen.append(as_argument(_built(suite, inside)))
    return tuple(dict.fromkeys(chosen))
