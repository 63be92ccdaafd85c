"""Names of files as models put them above code: in headings, bold, backticks, comments, prose."""

from __future__ import annotations

import re

from agent.repository.languages import TEXT, language_of

# No line that names a file is longer; patterns must not be run on a line of megabytes.
MAX_LINE = 1024

_VERB = r"updat(?:e|ed|ing)|modif(?:y|ied|ying)|edit(?:ed|ing)?|creat(?:e|ed|ing)|chang(?:e|ed|es)"
_LEADING = re.compile(
    r"(?:\s++|#++|//++|--++|/\*++|[-+*>=]++(?=\s|\*|`|>|=)|\*\*+|<!--|\d{1,3}[.)](?=\s)"
    r"|</?(?:path|file|filename|file_path)>"
    r"|(?:new |modified |updated )?(?:file|file[ _]?name|file[ _]?path|path)(?: ?\d{1,3})?\s*:"
    rf"|(?:{_VERB}|new|in|file|for|to|the|a)\b(?=[\s:`*]):?)++",
    re.IGNORECASE,
)
_TRAILING = re.compile(
    r"(?:\*/|-->|</(?:path|file|filename|file_path)>|[\s:*=,]"
    r"|\((?:a )?(?:new|new file|modified|updated|changed|edited|existing|lines?[ \d,–-]++)\))++$",
    re.IGNORECASE,
)
# `path:L10-42`, `path:12`: where an excerpt stands.
_LINES = re.compile(r":L?\d++(?:[-:]L?\d++)?$")
_QUOTED = re.compile(r"`([^`\n]{1,300})`|\"([^\"\n]{1,300})\"|'([^'\n]{1,300})'")
_BARE = re.compile(r"(?<![\w./@~+-])[\w.@~+-]*+(?:/[\w.@~+-]++)*+")

# Files that language tables do not know but patches touch.
_TEXT_SUFFIXES = frozenset(
    (
        "txt",
        "md",
        "rst",
        "cfg",
        "ini",
        "toml",
        "json",
        "yml",
        "yaml",
        "xml",
        "csv",
        "tsv",
        "lock",
        "env",
        "in",
        "conf",
        "properties",
        "gradle",
    )
)
_PLACEHOLDER = re.compile(
    r"(?:\./)?(?:path/to|your|some/path|full/path|relative/path|exact/path|example/path)\b.*"
    r"|<[^>]*>|\{[^}]*\}|\[[^\]]*\]|.*(?:\.\.\.|…).*"
    r"|(?:file_?name|file_?path|path)(?:\.(?:ext|py))?|(?:pkg/(?:new_)?module|pkg/obsolete)\.py",
    re.IGNORECASE | re.DOTALL,
)
_NOTHING_SAID = re.compile(
    r"\W*+(?:(?:the |your |exact |whole |some )*+"
    r"(?:old|new|original|existing|updated|modified|replacement|content|search|replace|file)?+ ?"
    r"(?:text|code|lines?|content|contents|snippet|here|of a new file|of the file)?+)?+\W*+",
    re.IGNORECASE,
)


def path_on_line(line: str) -> str | None:
    """The path that a line names and nothing else, freed of decoration. Quotes allow spaces."""
    if len(line) > MAX_LINE:
        return None
    lead = _LEADING.match(line)
    bare = _TRAILING.sub("", line[lead.end() if lead else 0 :].strip())
    quoted = _QUOTED.fullmatch(bare)
    path = next(filter(None, quoted.groups()), "") if quoted else bare.strip("`")
    path = _LINES.sub("", path)
    if not path or (not quoted and re.search(r"[\s`]", path)):
        return None
    return path


def looks_like_path(text: str) -> bool:
    """Whether a word is the name of a file beyond doubt: by its ending, or known by its name."""
    if not 0 < len(text) <= 300 or re.search(r"[\s*?<>|\"'`(){}\[\],;]", text):
        return False
    name = text.rsplit("/", 1)[-1]
    suffix = name.rpartition(".")[2].lower() if "." in name else ""
    return language_of(text) != TEXT or suffix in _TEXT_SUFFIXES


def paths_in_prose(line: str) -> tuple[str, ...]:
    """The different paths that a line of prose mentions, in order."""
    found: dict[str, None] = {}
    if len(line) > MAX_LINE:
        return ()
    for match in _QUOTED.finditer(line):
        path = _LINES.sub("", next(filter(None, match.groups()), ""))
        if looks_like_path(path):
            found[path] = None
    for match in _BARE.finditer(_QUOTED.sub(" ", line)):
        path = match[0].rstrip(".")
        # `x.c` and `self.r` are files of C and R or attributes, `build` is a word: a slash decides.
        if looks_like_path(path) and ("/" in path or re.search(r"\.\w{2,}$", path)):
            found[path] = None
    return tuple(found)


def is_placeholder_path(path: str) -> bool:
    """`path/to/file.py`, `<path>`: what a description of the format says instead of a path."""
    return _PLACEHOLDER.fullmatch(path) is not None


def says_nothing(text: str) -> bool:
    """`...`, `old code`, `exact old text`: what stands for code in a description of the format."""
    return len(text) <= SHORT and _NOTHING_SAID.fullmatch(text) is not None


# Texts of descriptions are a few words.
SHORT = 60
