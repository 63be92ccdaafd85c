"""What is put right in a reply without asking the model again: small, named, switched off by name.

A repair is made only where the reply as it stands would fail or be wrong for sure, and where its
own words leave one way to mend it. What was done, and the failure that it saved, is reported.
"""

from __future__ import annotations

import ast
import builtins
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from agent.errors import ConfigurationError
from agent.patching.tiers.basic import Place
from agent.patching.tiers.lines import Page, Wanted, indent_of, is_blank
from agent.types import MatchTier, Repair

REPAIRS: Mapping[str, str] = MappingProxyType(
    {
        "path": "a path that names one file in another spelling, or a file that has moved",
        "indentation": "a replacement indented otherwise than the text that it replaces",
        "final-newline": "a replacement without the line feed that its search text ends with",
        "missing-import": "an import that the reply speaks of and its new code needs",
        "unclosed-fence": "a code fence that is not closed",
    }
)
"""Names and what they mend. `unclosed-fence` is done by the readers of replies."""

_TIERS = frozenset(tier.value for tier in MatchTier) - {
    "exact",
    "created",
    "deleted",
    "renamed",
    "already-applied",
}


def switched_off(names: Collection[str]) -> frozenset[str]:
    """Names of repairs and lenient tiers; `all` stands for all. Raises ConfigurationError."""
    known = {*REPAIRS, *_TIERS}
    unknown = sorted(set(names) - known - {"all"})
    if unknown:
        raise ConfigurationError(
            f"--no-repair {unknown[0]}: no such repair or tier; known are all, "
            f"{', '.join(sorted(known))}"
        )
    return frozenset(known) if "all" in names else frozenset(names)


# ------------------------------------------------------------------------- slips of an exact match

# What stands at the margin of a module more often than not.
_OUTERMOST = re.compile(r"(?:async def|def|class|@|if __name__|from|import)\b")


def mend_exact(
    page: Page,
    wanted: Wanted,
    place: Place,
    literal: str,
    intact: Callable[[str], bool],
    off: Collection[str],
) -> tuple[str, tuple[Repair, ...]]:
    """The replacement for an exact match, with the slips that its surroundings give away mended."""
    text, repairs = literal, []
    if "final-newline" not in off and _joins_lines(page, wanted, place):
        text += "\n"
        note = "the replacement's last line would have run into the next one"
        repairs.append(Repair("final-newline", note, "broken-syntax"))
    if "indentation" not in off:
        mended = _indented(page, wanted, place, text, intact)
        if mended is not None:
            text = mended
            note = "the replacement was indented as the text that it replaces"
            repairs.append(Repair("indentation", note, "broken-syntax"))
    return text, tuple(repairs)


def _joins_lines(page: Page, wanted: Wanted, place: Place) -> bool:
    """Whether a line feed got lost between the replacement and the next line."""
    return (
        wanted.search.endswith("\n")
        and bool(wanted.replace)
        and not wanted.replace.endswith("\n")
        and place.end < len(page.text)
    )


def _indented(
    page: Page, wanted: Wanted, place: Place, text: str, intact: Callable[[str], bool]
) -> str | None:
    margin = _margin(page, place)
    if margin and len(wanted.old) == 1 and _hangs(wanted, margin):
        # The search text is one line without its indentation, and so are all new ones.
        return _shifted(text, lambda line: margin + line, first=False)
    if intact(text):
        return None
    for way in _ways(wanted, text, margin):
        if way != text and intact(way):
            return way
    return None


def _margin(page: Page, place: Place) -> str:
    """The part of the indentation that stands before the match, "" if more does."""
    line = page.text[page.text.rfind("\n", 0, place.start) + 1 : place.start]
    return line if line and is_blank(line) else ""


def _hangs(wanted: Wanted, margin: str) -> bool:
    """Whether the new lines after the first are indented relative to the search text."""
    depth = indent_of(wanted.old[0])
    rest = [line for line in wanted.new[1:] if not is_blank(line)]
    if not rest or indent_of(wanted.new[0]) != depth:
        return False
    if any(_OUTERMOST.match(line) for line in rest):
        return False  # may be meant for the margin
    return all(indent_of(line).startswith(depth) for line in rest) and not all(
        indent_of(line).startswith(margin + depth) for line in rest
    )


def _ways(wanted: Wanted, text: str, margin: str) -> Iterator[str]:
    """The replacement moved to where the search text's first or least indented line stands."""
    old = [indent_of(line) for line in wanted.old if not is_blank(line)]
    new = [indent_of(line) for line in text.split("\n") if not is_blank(line)]
    if not old or not new:
        return
    pairs = [(new[0], old[0]), (min(new, key=len), min(old, key=len)), (new[0], margin + old[0])]
    for have, want in dict.fromkeys(pairs):
        if have != want and all(indent.startswith(have) for indent in new):
            yield _shifted(text, lambda line, h=have, w=want: w + line[len(h) :])  # type: ignore[misc]
    if margin and len(new) > 1 and new[0] == margin + old[0]:
        # The first line brings the indentation that already stands before the match.
        yield text[len(margin) :]


def _shifted(text: str, move: Callable[[str], str], *, first: bool = True) -> str:
    lines = text.split("\n")
    start = 0 if first else 1
    return "\n".join(
        line if index < start or is_blank(line) else move(line) for index, line in enumerate(lines)
    )


# --------------------------------------------------------------------------------- missing imports

_IMPORT = re.compile(
    r"(?<![\w.])(?:from[ \t]+(?P<module>\.*[A-Za-z_][\w.]*|\.+)[ \t]+)?"
    r"import[ \t]+(?P<names>[A-Za-z_][\w.]*(?:[ \t]+as[ \t]+[A-Za-z_]\w*)?"
    r"(?:[ \t]*,[ \t]*[A-Za-z_]\w*(?:[ \t]+as[ \t]+[A-Za-z_]\w*)?)*)"
)
_MAX_TEXT = 200_000  # of a reply that is looked through
_MAX_SOURCE = 1024 * 1024
_PROSE = frozenset({"the", "a", "an", "it", "this", "that", "and", "to", "of", "is", "from"})


def missing_imports(before: str, after: str, texts: Sequence[str]) -> tuple[str, list[str]] | None:
    """A Python source with the imports added that it newly lacks and `texts` spell out.

    `texts` are what the reply says: its thought and its new code. A name qualifies if the old
    source did not use it undefined, the new one does, and `texts` hold one import statement for it
    and no other. Gives the new source and the statements; None if there is nothing to add.
    """
    if max(len(before), len(after)) > _MAX_SOURCE or before == after:
        return None
    new, old = _undefined(after), _undefined(before)
    if not new or old is None:
        return None
    offered = _offered(texts)
    statements: list[str] = []
    for name in sorted(new - old):
        offers = offered.get(name, set())
        if len(offers) == 1:
            statements.extend(offers)
    if not statements:
        return None
    at = _import_line(after)
    lines = after.split("\n")
    return "\n".join([*lines[:at], *statements, *lines[at:]]), statements


def _offered(texts: Sequence[str]) -> dict[str, set[str]]:
    """Import statements that texts spell out, by the name that each binds."""
    offers: dict[str, set[str]] = {}
    for text in texts:
        for found in _IMPORT.finditer(text[:_MAX_TEXT].replace("`", " ")):
            for item in found["names"].split(","):
                name, _, alias = (part.strip() for part in item.partition(" as "))
                bound = alias or name.split(".")[0]
                if bound in _PROSE or (found["module"] and "." in name):
                    continue
                words = f"{name} as {alias}" if alias else name
                start = f"from {found['module']} import " if found["module"] else "import "
                offers.setdefault(bound, set()).add(start + words)
    return offers


def _parsed(source: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _undefined(source: str) -> set[str] | None:
    """Names that a module reads and binds nowhere; None if that cannot be told.

    Scopes are not told apart: a name bound anywhere counts as bound, so that nothing is imported
    that might be there. A star import may bind everything.
    """
    tree = _parsed(source)
    if tree is None:
        return None
    used: set[str] = set()
    bound: set[str] = {*dir(builtins), "__file__", "__path__", "__class__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.alias):
            if node.name == "*":
                return None
            bound.add(node.asname or node.name.split(".")[0])
        else:
            bound.update(_binds(node))
    return used - bound


def _binds(node: ast.AST) -> Iterator[str]:
    """Names that a node binds other than by assignment and import."""
    if isinstance(node, ast.keyword):
        return  # names a parameter of something else
    for name in ("name", "arg", "rest"):  # definitions, handlers, parameters, patterns
        value = getattr(node, name, None)
        if isinstance(value, str):
            yield value
    if isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names


def _import_line(source: str) -> int:
    """How many lines stand before the place of a new import: after the last import at the top."""
    tree = _parsed(source)
    body = tree.body if tree else []
    end = 0
    for index, node in enumerate(body):
        is_doc = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Import | ast.ImportFrom) or is_doc:
            end = node.end_lineno or end
        else:
            break
    return end or _first_code_line(source)


def _first_code_line(source: str) -> int:
    """After a shebang and comments at the very top (a coding cookie must stay in its line)."""
    lines = source.split("\n")
    return next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
