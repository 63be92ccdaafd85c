"""Finds out whether tests failed because the sandbox lacks a network, a server or packages. Pure.

It reads the messages of failing tests, or the output where no test ran. The result is a hint for
the report and not a verdict: a test may print such a message and fail for another reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from agent.types import Outcome, TestRun
from agent.verify.judging.wording import how_it_ended
from agent.verify.reports import COMMAND_ID

# Number of characters read from the end of a text, where the useful messages are.
_MOST_CHARS = 20_000

# Number of characters of a line that a message quotes.
_LINE_CHARS = 200

# Names that could not be resolved, hosts that could not be reached.
_NETWORK = (
    r"Temporary failure in name resolution",
    r"Name or service not known",
    r"nodename nor servname provided",
    r"No address associated with hostname",
    r"[Cc]ould not resolve (?:host|proxy)",
    r"Network is unreachable",
    r"No route to host",
    r"getaddrinfo (?:EAI_AGAIN|ENOTFOUND)",
    r"\bENETUNREACH\b",
    r"UnknownHostException",
    r"Failed to resolve '",
    r"NameResolutionError",
    r"dial tcp: lookup ",
    r"dns error: failed to lookup",
    r"failed to lookup address information",
)

_REFUSED = r"(?:[Cc]onnection refused|ECONNREFUSED|Cannot assign requested address)"

# Messages of clients whose server does not answer, by server.
_SERVICES: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "PostgreSQL": (
            rf"port 5432 failed: {_REFUSED}",
            r"psycopg\w*\.OperationalError",
            r"could not connect to server: [^\n]{0,300}\n?[^\n]{0,300}Is the server running",
            r"\.s\.PGSQL\.\d+",
            rf"{_REFUSED}[^\n]{{0,80}}\b5432\b",
        ),
        "MySQL": (
            r"Can't connect to (?:local )?(?:MySQL|server)",
            rf"{_REFUSED}[^\n]{{0,80}}\b3306\b",
        ),
        "Redis": (
            rf"Error \d+ connecting to \S+:6379\. {_REFUSED}",
            rf"redis\.exceptions\.ConnectionError[^\n]{{0,200}}{_REFUSED}",
            rf"{_REFUSED}[^\n]{{0,80}}\b6379\b",
        ),
        "MongoDB": (
            r"ServerSelectionTimeoutError",
            rf":27017: [^\n]{{0,80}}{_REFUSED}",
            rf"{_REFUSED}[^\n]{{0,80}}\b27017\b",
        ),
        "RabbitMQ": (r"AMQPConnectionError", rf"{_REFUSED}[^\n]{{0,80}}\b5672\b"),
        "Elasticsearch": (rf"{_REFUSED}[^\n]{{0,80}}\b9200\b",),
        "Docker": (r"Cannot connect to the Docker daemon", r"Error while fetching server API"),
        "a display": (r"cannot open display", r"no display name and no \$DISPLAY"),
        "a server on this machine": (_REFUSED,),
    }
)

# Messages of package managers that work offline and lack something.
_PACKAGES: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "cargo": (
            r"you're using offline mode \(--offline\)",
            r"attempting to make an HTTP request, but --offline was specified",
            r"can't checkout from '[^']*': you are in the offline mode",
        ),
        "Maven": (r"in offline mode and the artifact \S+",),
        "Go": (
            r"module lookup disabled by GOPROXY=off",
            r"no required module provides package",
            r"missing go\.sum entry",
        ),
        "npm": (r"\bENOTCACHED\b", r"cache mode is 'only-if-cached'"),
        "node": (r"Cannot find (?:module|package) '[^./'][^']*'",),
        "the runner": (r"(?:^|\n)[^\n]{0,200}(?:\bnot found|No such file or directory)\s*$",),
    }
)

# What programs print that started and then found nothing to run.
_NOT_STARTED = (
    r"make(?:\[\d+\])?: \*\*\* No (?:rule to make target|targets)[^\n]*",
    r"\S*python[\d.]*: (?:No module named|can't open file) [^\n]*",
    r"(?:/bin/)?sh: (?:line )?\d+: [^\n]*(?:not found|[Ss]yntax error|can't cd to)[^\n]*",
    r"npm (?:ERR!|error) [^\n]*[Mm]issing script[^\n]*",
    r"error Command \"[^\n]*\" not found[^\n]*",
    r"error: no such (?:sub)?command[^\n]*",
    r"go \w+: unknown (?:sub)?command[^\n]*",
    r"go: (?:cannot find main module|go\.mod file not found)[^\n]*",
)
_STARTLESS = re.compile("|".join(rf"^{pattern}" for pattern in _NOT_STARTED), re.MULTILINE)

_LOOKUP = re.compile("|".join(_NETWORK))
_BY_SERVICE = {name: re.compile("|".join(patterns)) for name, patterns in _SERVICES.items()}
_BY_MANAGER = {name: re.compile("|".join(patterns)) for name, patterns in _PACKAGES.items()}


def not_started(run: TestRun) -> str:
    """Return why a whole test command started no test, or "".

    A command that only gives an exit code counts as started, unless its output says otherwise.
    """
    told = _STARTLESS.search(run.output_tail[-_MOST_CHARS:])
    if not run.outcomes:
        return _cannot_start(run) if _never_began(run) else _ran_nothing(run)
    if told and run.exit_code and set(run.outcomes) == {COMMAND_ID}:
        return told[0].strip()[:_LINE_CHARS]
    return ""


def _cannot_start(run: TestRun) -> str:
    return f"it cannot be started ({_last_line(run).removeprefix('prlimit: ')})"


def _ran_nothing(run: TestRun) -> str:
    return f"it {how_it_ended(run)} and no test ran ({_last_line(run)})"


def _last_line(run: TestRun) -> str:
    lines = [line.strip() for line in run.output_tail.split("\n") if line.strip()]
    return lines[-1][:_LINE_CHARS] if lines else "no output"


def needs(run: TestRun) -> tuple[str, ...]:
    """Return descriptions of everything that the tests lacked."""
    found = (needs_network(run), needs_service(run), needs_packages(run))
    return tuple(note for note in found if note)


def needs_network(run: TestRun) -> str:
    """Return a note about tests that need the network, or ""."""
    texts = [text for text in _texts(run) if _LOOKUP.search(text)]
    return f"{_who(run, texts)} the network: the sandbox has no network" if texts else ""


def needs_service(run: TestRun) -> str:
    """Return a note about tests that need a database or another server, or ""."""
    named: dict[str, None] = {}
    wanting: list[str] = []
    for text in _texts(run):
        service = next((name for name, said in _BY_SERVICE.items() if said.search(text)), None)
        if service:
            named[service] = None
            wanting.append(text)
    if not wanting:
        return ""
    return f"{_who(run, wanting)} {' and '.join(named)}: nothing of the kind runs in the sandbox"


def needs_packages(run: TestRun) -> str:
    """Return a note about a build that would have to download packages, or ""."""
    for text in _texts(run):
        for name, said in _BY_MANAGER.items():
            found = said.search(text)
            if found and (name != "the runner" or _never_began(run)):
                line = found[0].strip().splitlines()[-1][:200]
                return f"{name} lacks what is not installed here, and cannot fetch it: {line}"
    return ""


def _texts(run: TestRun) -> Iterable[str]:
    """Return the failing tests' messages, sorted by id, or the output where no test ran."""
    if not run.outcomes or set(run.outcomes) == {"command"}:
        return [run.output_tail[-_MOST_CHARS:]]
    return [run.failures[test][-_MOST_CHARS:] for test in sorted(run.failures)]


def _never_began(run: TestRun) -> bool:
    return not run.outcomes and run.exit_code in (126, 127)


def _who(run: TestRun, texts: Sequence[str]) -> str:
    bad = (Outcome.FAILED, Outcome.ERROR)
    if not any(outcome in bad for outcome in run.outcomes.values()) or "command" in run.outcomes:
        return "the tests need"
    return f"{len(texts)} failing test{'s need' if len(texts) > 1 else ' needs'}"
