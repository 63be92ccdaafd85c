"""Edits in XML-like tags, which many tools ask for and in which tool calls are printed.

    <file>path</file>                       <edit path="path">              <file path="new.py">
    <original>old</original>                  <search>old</search>          whole content
    <patched>new</patched>                    <replace>new</replace>        </file>
                                            </edit>

An edit is a pair of an old and a new text. Its file is the last one that was named, by an attribute
of a tag around it or by a tag before it. Nothing is unescaped, since code is full of `<` and
`&amp;`. The parameters of a printed tool call (`parameter name="old_str"`, `parameter=old_str`)
count as tags of that name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.patching.readers.base import Outcome, Reading, Reply, Trouble, malformed, truncated
from agent.patching.readers.fences import MAX_LINE, path_on_line
from agent.patching.schema import MAX_EDITS
from agent.types import CreateFile, DeleteFile, Edit, PatchProposal, SearchReplace

_SHAPE = "edits in tags"

_OLD = (
    *("search", "old", "old_str", "old_string", "old_text", "old_code", "original", "before"),
    *("find", "original_code", "search_text"),
)
_NEW = (
    *("replace", "new", "new_str", "new_string", "new_text", "new_code", "patched", "updated"),
    *("after", "replacement", "modified", "updated_code", "modified_code", "replace_text"),
)
_PATH = ("path", "file_path", "filepath", "filename", "file_name", "target_file")
_CONTENT = ("content", "file_text", "create", "new_content", "contents")
_OTHER = ("command", "insert_line")
_LEAVES = frozenset({*_OLD, *_NEW, *_PATH, *_CONTENT, *_OTHER})
_FILES = (
    *("file", "edit", "change", "modification", "create_file", "new_file", "delete"),
    *("delete_file", "write_to_file", "write_file", "create"),
)

_NAME = "|".join(sorted({*_LEAVES, *_FILES}, key=lambda name: (-len(name), name)))
_OPEN = re.compile(
    rf"<(?:(?P<call>(?:\w{{1,20}}:)?parameter)(?: name=|=)"
    rf"[\"']?(?P<parameter>{'|'.join(sorted(_LEAVES))})[\"']?"
    rf"|(?P<tag>{_NAME})(?P<attributes>\s[^<>\n]{{0,400}}?)?)(?P<empty>\s*/)?>",
    re.IGNORECASE,
)
_HINT = re.compile(
    r"<(?=\w)(?:\w{1,20}:)?(?:original|search|old|old_str|old_string|old_code|before|find|file|edit|create"
    r"|content|delete|delete_file|file_text|new_file|parameter)[\s>=]",
    re.IGNORECASE,
)
_ATTRIBUTE = re.compile(
    r"\b(path|file|filename|file_path|name|line|start_line|action|type)\s*=\s*"
    r"(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))",
    re.IGNORECASE,
)
_FENCED = re.compile(r"\s*(`{3,}|~{3,})[^\n`]*\n(.*?)(?:\n|^)\1[ \t]*\s*", re.DOTALL)
_CDATA = re.compile(r"\s*<!\[CDATA\[(.*)\]\]>\s*", re.DOTALL)
_OTHER_SHAPE = re.compile(
    r"^[ \t]*(?:<{5,9}|-{5,9}) ?SEARCH\b|^@@ |^\*\*\* (?:Begin|Update)", re.MULTILINE
)

# Number of tags that are read. An edit has about four.
_MAX_TAGS = 50_000


@dataclass(frozen=True, slots=True)
class _Element:
    name: str
    attributes: dict[str, str]
    body: str
    start: int
    end: int


def read_tags(reply: Reply, name: str) -> Outcome:
    """Read all edits in tags, in order."""
    if "<" not in reply.text or not _HINT.search(reply.text):
        return None
    reader = _Tags(reply)
    problem = reader.read()
    if problem is not None:
        return problem
    if not reader.edits:
        return None
    if reply.cut_off:
        what = f"{_SHAPE}: the reply was cut off at the output limit; further edits may be missing"
        return Trouble(truncated(what), (reader.spans[0][0], reader.spans[-1][1]))
    return Reading(PatchProposal(tuple(reader.edits), reader=name), tuple(reader.spans))


class _Tags:
    """Reads the tags in order. `path`, `old` and `command` apply to the next new text."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.edits: list[Edit] = []
        self.spans: list[tuple[int, int]] = []
        self.path = ""
        self.line: int | None = None
        self.old: _Element | None = None
        self.command = ""
        self.insert: int | None = None
        self.closings: dict[str, int] = {}

    def read(self) -> Trouble | None:
        position, count = 0, 0
        while match := _OPEN.search(self.reply.text, position):
            position, count = match.end(), count + 1
            if count > _MAX_TAGS:
                return self.trouble(match.start(), f"more than {_MAX_TAGS} tags")
            outcome = self.tag(match)
            if isinstance(outcome, Trouble):
                return outcome
            position = max(position, outcome)
            if len(self.edits) > MAX_EDITS:
                return self.trouble(match.start(), f"more than {MAX_EDITS} edits")
        if self.old is not None and self.path:
            return self.trouble(self.old.start, f"<{self.old.name}> without the new text after it")
        return None

    def tag(self, match: re.Match[str]) -> int | Trouble:
        """Read one tag; return the offset of the next."""
        name = (match["parameter"] or match["tag"]).lower()
        attributes = _attributes(match["attributes"] or "")
        if name in _FILES:
            return self.file_tag(match, name, attributes)
        element = self.element(match, name, attributes)
        if element is None:
            return self.unclosed(match, name)
        self.leaf(element)
        if name in _PATH or name in _OTHER:
            return element.end
        problem = self.text_tag(element)
        return problem if problem is not None else element.end

    # --------------------------------------------------------------------------- kinds of tags

    def file_tag(
        self, match: re.Match[str], name: str, attributes: dict[str, str]
    ) -> int | Trouble:
        """Read a tag that names a file by an attribute or its text, or holds a whole file."""
        path = attributes.get("path", "")
        if path:
            self.begin(path, attributes)
        if match["empty"]:
            if path and ("delete" in name or attributes.get("action") == "delete"):
                self.add(DeleteFile(self.path), match.start(), match.end())
            return match.end()
        end = self.closing(match)
        if end < 0:
            return match.end()
        if not path:
            return self.file_named(match, name, end)
        text = self.reply.text
        if _OPEN.search(text, match.end(), end) or _OTHER_SHAPE.search(text, match.end(), end):
            return match.end()
        element = self.element(match, name, attributes)
        if element is None:
            return match.end()
        if "delete" in name or attributes.get("action") == "delete":
            self.add(DeleteFile(path), element.start, element.end)
        elif name not in ("edit", "change", "modification") and element.body.strip():
            self.add(CreateFile(path, _whole(element.body), True), element.start, element.end)
        return element.end

    def file_named(self, match: re.Match[str], name: str, end: int) -> int:
        """Read `<file>path</file>` or `<delete>path</delete>`: the tag holds only a path."""
        if name not in ("file", "delete", "delete_file") or end - match.end() > MAX_LINE:
            return match.end()
        body = self.reply.text[match.end() : end].strip()
        named = path_on_line(body) if "\n" not in body else None
        if not named:
            return match.end()
        self.begin(named, {})
        after = end + len(match["tag"]) + len("</>")
        if name != "file":
            self.add(DeleteFile(named), match.start(), after)
        return after

    def text_tag(self, element: _Element) -> Trouble | None:
        """Read a tag that holds an old, a new or a whole text."""
        if _OTHER_SHAPE.search(element.body):
            if element.name in _OLD and self.path:
                what = f"<{element.name}> has marks of a diff or of blocks in it"
                return self.trouble(element.start, what)
            return None  # tags around a diff or blocks: those are read by their own readers
        if element.name in _OLD:
            if self.old is not None and self.path:
                return self.trouble(element.start, f"a second <{element.name}> before the new text")
            self.old = element
            return None
        if not self.path:
            self.old = None
            return None  # tags of something else
        if element.name in _CONTENT:
            if self.old is None:
                self.add(
                    CreateFile(self.path, _whole(element.body), self.command != "create"),
                    element.start,
                    element.end,
                )
            return None
        return self.new_text(element)

    def new_text(self, element: _Element) -> Trouble | None:
        new = _text(element.body)
        if self.old is None:
            if self.insert is None:
                return self.trouble(
                    element.start, f"<{element.name}> without the old text before it"
                )
            edit = SearchReplace(self.path, "", _as_lines(new), self.insert + 1)
            self.add(edit, element.start, element.end)
            return None
        old = _text(self.old.body)
        line = self.line or _number(self.old.attributes)
        self.add(SearchReplace(self.path, *_same_ends(old, new), line), self.old.start, element.end)
        return None

    def leaf(self, element: _Element) -> None:
        """Take the path, command or line of an edit."""
        value = element.body.strip()
        if element.name in _PATH:
            self.begin(path_on_line(value) or value, element.attributes)
        elif element.name == "command":
            self.command, self.insert = value, None
        elif element.name == "insert_line" and value.isascii() and value.isdigit():
            self.insert = int(value[:9])

    # ------------------------------------------------------------------------------------ parts

    def begin(self, path: str, attributes: dict[str, str]) -> None:
        self.path = path
        self.line = _number(attributes)

    def add(self, edit: Edit, start: int, end: int) -> None:
        self.edits.append(edit)
        self.spans.append((start, end))
        self.old = self.insert = self.line = None

    def element(
        self, match: re.Match[str], name: str, attributes: dict[str, str]
    ) -> _Element | None:
        """Return the element from this tag to its first closing tag; None without one."""
        if match["empty"]:
            return _Element(name, attributes, "", match.start(), match.end())
        end = self.closing(match)
        if end < 0:
            return None
        after = end + len(match["call"] or match["tag"]) + len("</>")
        return _Element(name, attributes, self.reply.text[match.end() : end], match.start(), after)

    def closing(self, match: re.Match[str]) -> int:
        """Return the offset of the first closing tag, -1 if there is none."""
        close = f"</{match['call'] or match['tag']}>"
        known = self.closings.get(close)
        # Tags are read in order, so each closing tag is searched once.
        if known is None or 0 <= known < match.end():
            known = self.closings[close] = self.reply.text.find(close, match.end())
        return known

    def unclosed(self, match: re.Match[str], name: str) -> int | Trouble:
        """Handle a tag that is never closed: the reply was cut off, or the tag is no edit."""
        if not (self.path and (self.old is not None or name in _OLD or name in _CONTENT)):
            return match.end()
        what = f"{_SHAPE}: the text ends inside <{name}> (line {self.reply.line(match.start())})"
        return Trouble(truncated(what), (match.start(), len(self.reply.text)))

    def trouble(self, offset: int, what: str) -> Trouble:
        failure = malformed(self.reply, _SHAPE, offset, f"{what}; give the edits as JSON instead")
        return Trouble(failure, (offset, offset + 1))


# ------------------------------------------------------------------------------------------ values


def _attributes(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(text):
        name = match[1].lower()
        key = {"file": "path", "filename": "path", "file_path": "path", "name": "path"}.get(
            name, name
        )
        key = "line" if key == "start_line" else "action" if key == "type" else key
        found.setdefault(key, match[2] or match[3] or match[4] or "")
    return found


def _number(attributes: dict[str, str]) -> int | None:
    value = attributes.get("line", "")
    return int(value[:9]) or None if value.isascii() and value.isdigit() else None


def _text(body: str) -> str:
    """Return the text without a fence or CDATA around it and the line break after its tag."""
    fenced = _FENCED.fullmatch(body) if "```" in body or "~~~" in body else None
    if fenced:
        return fenced[2] + "\n" if fenced[2] else ""
    cdata = _CDATA.fullmatch(body) if "<![CDATA[" in body else None
    inner = cdata[1] if cdata else body
    if "\n" not in inner:
        return inner
    lines = inner.split("\n")
    if not lines[0].strip():
        del lines[0]
    if lines and not lines[-1].strip():
        lines[-1] = ""  # the indentation of the closing tag
    return "\n".join(lines)


def _whole(body: str) -> str:
    return _as_lines(_text(body))


def _as_lines(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _same_ends(old: str, new: str) -> tuple[str, str]:
    """Give both texts the same end: a line break on one side only comes from the tags."""
    if not old or not new or old.endswith("\n") == new.endswith("\n"):
        return old, new
    if "\n" in old.rstrip("\n") or "\n" in new.rstrip("\n"):
        return _as_lines(old), _as_lines(new)
    return old.removesuffix("\n"), new.removesuffix("\n")
