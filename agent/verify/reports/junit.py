"""JUnit's XML, as surefire, jest, node and pytest write it: hostile data, read with defusedxml."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.types import Outcome

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

# Worst first, because a test has one case for each phase that failed.
_ORDER = (Outcome.FAILED, Outcome.ERROR, Outcome.SKIPPED, Outcome.PASSED)

# Characters that XML cannot hold; pytest writes them as `#x07` (`_pytest.junitxml.bin_xml_escape`).
_ILLEGAL = re.compile("[^\t\n\r\x20-\x7e\x80-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class JunitReport:
    """Outcomes by `classname.name`. `problem` says why the file could not be read, "" if it was."""

    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    problem: str = ""


def read_junit(data: bytes) -> JunitReport:
    """Read the file. Never raises: `problem` describes an invalid file."""
    if not data:
        return JunitReport(problem="pytest's JUnit file is missing or no regular file")
    cases = read_cases(data)
    if cases is None:
        return JunitReport(problem="pytest's JUnit file is no XML, or defines entities")
    outcomes: dict[str, Outcome] = {}
    for case in cases:
        name = ".".join(filter(None, (case.classname, case.name)))
        outcomes[name] = min(outcomes.get(name, case.outcome), case.outcome, key=_ORDER.index)
    return JunitReport(outcomes)


def junit_name(test: str) -> str:
    """Return pytest's `classname.name` of a test id (`_pytest.junitxml.mangle_test_address`)."""
    path, bracket, parameters = test.partition("[")
    first, *rest = path.split("::")
    names = [first.replace("/", ".").removesuffix(".py"), *rest]
    return _ILLEGAL.sub(_visible, ".".join(names) + bracket + parameters)


def _visible(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"#x{number:02X}" if number <= 0xFF else f"#x{number:04X}"


# Deeper than real nesting of suites, to stop maliciously nested documents.
_DEEPEST = 50

_ENDINGS = (
    ("error", Outcome.ERROR),
    ("failure", Outcome.FAILED),
    ("skipped", Outcome.SKIPPED),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One `testcase`. `text` is the message of a failure. Missing attributes are ""."""

    classname: str
    name: str
    file: str
    outcome: Outcome
    text: str = ""


def read_cases(document: bytes) -> tuple[Case, ...] | None:
    """Return the test cases in order. Return None for invalid XML and for XML with entities."""
    # Imported here, because a command that runs no tests reads no XML.
    from xml.etree.ElementTree import ParseError

    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import fromstring

    try:
        root = fromstring(document.strip(), forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError, LookupError, RecursionError):
        return None
    return tuple(_cases(root, 0))


def _cases(element: Element, depth: int) -> Iterator[Case]:
    if _local(element) == "testcase":
        yield _case(element)
    elif depth < _DEEPEST:
        for child in element:
            yield from _cases(child, depth + 1)


def _case(element: Element) -> Case:
    outcome, text = Outcome.PASSED, ""
    children = {_local(child): child for child in reversed(element)}
    for tag, meaning in _ENDINGS:
        child = children.get(tag)
        if child is not None:
            outcome = meaning
            text = "\n".join(filter(None, (child.get("message", ""), (child.text or "").strip())))
            break
    return Case(
        element.get("classname", ""),
        element.get("name", ""),
        element.get("file", ""),
        outcome,
        text,
    )


def _local(element: Element) -> str:
    """Return the tag without its namespace, "" for a comment."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
