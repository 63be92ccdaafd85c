"""JUnit's XML, as surefire, jest, node and pytest write it: hostile data, read with defusedxml."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.types import Outcome

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

# Deeper than any real nesting of suites; a bomb of nested elements ends here.
_DEEPEST = 50

_ENDINGS = (
    ("error", Outcome.ERROR),
    ("failure", Outcome.FAILED),
    ("skipped", Outcome.SKIPPED),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One `testcase`. `text` is what a failure says; "" for attributes that are not there."""

    classname: str
    name: str
    file: str
    outcome: Outcome
    text: str = ""


def read_cases(document: bytes) -> tuple[Case, ...] | None:
    """The test cases of a document in order; None where it is no XML, or one with entities."""
    # Imported here: a command that runs no tests reads no XML.
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
    """The tag without its namespace; comments have no text for a tag."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
