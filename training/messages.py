"""Commit messages as queries: cleans them and drops uninformative ones.

The rules come from reading messages of the mined projects. They judge words, not meaning, and
prefer to lose a good message over accepting many empty ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MIN_WORDS = 4
"""Shorter messages ("Fix bug", "Update foo.py") describe no behaviour."""

MAX_BODY_CHARS = 6_000
"""Longer bodies are logs or the messages of a hundred squashed commits."""

_MIN_OTHER_WORDS = 3
"""Least words that are not file names: a message with fewer is a list of files."""


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """A cleaned message. `fix`: it reads like the repair of a fault."""

    subject: str
    body: str
    fix: bool

    @property
    def text(self) -> str:
        """Return subject and body as one text."""
        return f"{self.subject}\n\n{self.body}" if self.body else self.subject


def clean_message(raw: str, project: str = "") -> CommitMessage | None:
    """Return the message to learn from; None if it says nothing about code.

    `project` is the name without owner: words like "black" are noise in every project but their
    own.
    """
    lines = [_clean_line(line) for line in raw.split("\n") if not _DROPPED.fullmatch(line.strip())]
    lines = [line for line in lines if not _is_noise_item(line, project)]
    subject, _, body = re.sub(r"\n{3,}", "\n\n", _without_head("\n".join(lines))).partition("\n")
    subject, body = _finish(subject.strip(), body.strip())
    if not subject or _is_noise(subject, project) or not _has_words(f"{subject}\n{body}"):
        return None
    return CommitMessage(subject, body[:MAX_BODY_CHARS].rstrip(), _is_fix(subject, raw))


def with_merged(raw: str, merged: str) -> str:
    """Return a merge's message, or the merged commit's if it says the same and more."""
    titles = [_clean_line(line.strip()) for line in raw.split("\n") if line.strip()]
    titles = [title for title in titles if not _DROPPED.fullmatch(title)]
    subject = _clean_line(merged.strip().partition("\n")[0])
    return merged if titles == [subject] else raw


# ----------------------------------------------------------------------------------------- cleaning

# Whole lines that tools write or that name people.
_DROPPED = re.compile(
    r"""
      (?:[*-]\ )? (?: [\w-]+-by | cc | change-id | reviewed-on | reviewers? | authors?
        | (?:approved|authored|reviewed)\ by | pull\ request\ resolved | differential\ revision
        | former-commit-id | piperorigin-revid | original-commit | git-svn-id | svn\ path
        | test\ plan | ghstack-source-id | github-pr | branch | src\ branch
      ) \s* [:=] .*
    | \(?(?:cherry[ -]picked|backported)\ from .*
    | merge[ds]?\ (?:pull\ request|pr|branch|branches|remote|remote-tracking|tag|commit|\#|!)\b.*
    | merge\ (?:[\w./-]+\ )?(?:in)?to\ [\w./-]+ | merge\ [\w./-]+\ into\ [\w./-]+ .*
    | merge\ (?:in\ )?<?[\w./-]+-\d+[.:]? | svn/trunk@\d+
    | auto\ merge .* | automatic\ merge .* | \#?\ ?conflicts:?
    | \#\t.* | [-=*_~]{3,} | \[?(?:skip|no)[ ]ci\]? | see\ merge\ request .*
    | co-authored .* | \U0001F916 .* | <!--.*-->
    """,
    re.VERBOSE | re.IGNORECASE,
)
_NUMBER = re.compile(r"\s*\((?:[\w./-]*#|gh-|pr\ ?#?|bpo-)\d+\)|\s*\[(?:ci skip|skip ci)\]", re.I)
_CHANGELOG = re.compile(
    r"[\w./-]*\b(?:changelog|changes|history|news|release[_-]notes|whats[_-]?new)\w*"
    r"\.(?:rst|md|txt|rest|in)\b|\bChangeLog\b",
    re.IGNORECASE,
)
_MARKUP = re.compile(r"^(?:#+\s+|Merge (?:in )?<?[\w./-]+: )")
_ONLY_REFERENCE = re.compile(
    r"(?:[*-] )?(?:(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?|refs?|see|bug|issue|ticket)[:\s]*)*"
    r"(?:(?:ticket:|bug )?[\w./-]*(?:#|gh-|issues/)\d+[,.\s]*(?:and )?)+",
    re.IGNORECASE,
)


# The subject of Gerrit's merges.
_GERRIT = re.compile(r'^Merge "(?P<title>.+)"(?: into \S+)?$')


def _clean_line(line: str) -> str:
    line = _GERRIT.sub(r"\g<title>", line)
    line = _CHANGELOG.sub("", _NUMBER.sub("", line.replace("\t", "    "))).rstrip()
    return _MARKUP.sub("", line)


def _without_head(text: str) -> str:
    """Remove first lines that only name an issue: they are no subject."""
    text = text.strip()
    while "\n" in text and _ONLY_REFERENCE.fullmatch(text.partition("\n")[0].strip()):
        text = text.partition("\n")[2].strip()
    return text


def _finish(subject: str, body: str) -> tuple[str, str]:
    """Unwrap a single squashed commit from its bullet; rejoin a subject that GitHub cut."""
    subject = re.sub(r"^[*-]\s+", "", subject).strip()
    if subject.endswith("…") and body.startswith("…"):
        head, _, body = body.partition("\n")
        subject = f"{subject[:-1]}{head[1:]}"
    elif subject.endswith("...") and body.startswith("..."):
        head, _, body = body.partition("\n")
        subject = f"{subject[:-3]}{head[3:]}"
    head, _, rest = body.partition("\n")
    repeats = re.sub(r"^[*-]\s+", "", head).strip().rstrip(".") == subject.rstrip(".")
    return subject.strip(), (rest if repeats else body).strip()


_ITEM = re.compile(r"^\s*(?:[*+-]|\d+[.)])\s+(.*)$")
_EMPTY_ITEM = re.compile(
    r"(?:wip|fix(?:e[sd])?|more fix(?:es)?|update[ds]?|oops|nits?|tests?|lint(?:ing)?|cleanup"
    r"|(?:apply|address|addressing|respond to|incorporate)\b.*\b(?:review|suggestions?|comments?"
    r"|feedback).*|.*\bcode review\b.*|self[- ]review|auto fixes.*|squash.*|fixup.*|merge\b.*"
    r"|update \S+|add(?:ed)? tests?|minor.*|undo.*|review.*|remove print\w*)[.!]?",
    re.IGNORECASE,
)


def _is_noise_item(line: str, project: str) -> bool:
    """Whether a line is an empty bullet, as squashed commits leave them."""
    item = _ITEM.match(line)
    if item is None:
        return False
    return _EMPTY_ITEM.fullmatch(item[1].strip()) is not None or _is_noise(item[1], project)


def _has_words(text: str) -> bool:
    words = [word for word in text.split() if re.search(r"[A-Za-z]{2}", word)]
    others = [word for word in words if "/" not in word and not re.search(r"\.\w{1,4}:?$", word)]
    return len(words) >= MIN_WORDS and len(others) >= _MIN_OTHER_WORDS


# -------------------------------------------------------------------------------------------- noise

# Chores that no issue asks for, whatever else the subject says.
_CHORE = re.compile(
    r"""
      (?: docs? | chore | ci | style | sty | build | bld | tests? | tst | release | rel | deps
        | typing | typ | lint | format | translations? | i18n | l10n | meta | infra | bench | rls
        | document(?:ation)? | packaging | devel
      ) \s* (?:\([^)]*\)|\[[^]]*\])? \s* !? \s* [:/] .*
    | \[(?:docs?|ci|test|tests|pre-commit[\w. ]*|chore|build|release|typing)\] .*
    | (?:revert|reverts|reverted|reverting|merge[ds]?|merging|rollback|back\ out)\b .*
    | (?:bump|post-release)\b .*
    | (?:releas(?:e[ds]?|ing)|version|tag(?:s|ged|ging)?|prepar(?:e|ing)) \W+ (?:the\ |a\ |for\ )*
        (?:[\w-]+\ )? (?:v?\d|version|release|candidate|notes?|bump|next|number|develop\w*).*
    | (?:preparing|ready|preparation)\ for\ .*
    | v?\d+\.\d+ .*
    | (?:start|begin|back\ to|open|switch\ to)\b .* \b(?:dev|develop\w*|version|\d+\.\d+).*
    | .* \bbump(?:s|ed|ing)?\b .*
    | (?:update|upgrade|updating|upgrading|pin|unpin|set|increment|change)\b .*
        \b(?:dependenc\w+|requirements?|version\ (?:number|to)|to\ v?\d+\.\d.*|lock\ ?file) .*
    | .* \b(?:typos?|misspell\w*|spelling|grammar|copyright|licen[sc]e|spdx)\b .*
    | (?:rename[sd]?|renaming|move[sd]?|moving|relocat\w+|reorgani[sz]\w+|reorder\w*)\b .*
    | sort(?:ed|s)?\ imports .*
    | .* \b(?:pre-commit|pyupgrade|autopep8|codespell|dependabot|renovate|version\ bump)\b .*
    | (?:wip|tmp|temp|misc|fixup|squash|oops)\b .*
    | (?:minor|small|some|more|various|several|few|trivial|tiny|random|further)\b
        (?:\ \w+){0,2}\ (?:change|update|improvement|tweak|cleanup|fixe?|edit|thing|correction)s?
    | (?:initial|first)\ commit .* | update\ \S+\.\w+ | updates?\ from\ .* | sync\ (?:with|to)\b.*
    | (?:apply|address|incorporate)\b .* \b(?:review|suggestions?|feedback|comments)\b .*
    """,
    re.VERBOSE | re.IGNORECASE,
)
# The same, unless the subject clearly says that something was faulty.
_ABOUT_TEXTS = re.compile(
    r"""
      .* (?<![-\w]) (?: docstrings? | documentation | documenting | readme | change\ ?logs?
        | release\ notes? | what'?s\ ?new | news\ (?:entry|fragment|file)s? | docs? | apidocs?
        | doctests? | travis | appveyor | github\ actions? | circleci | codecov
        | coveralls | tox\.ini | nox | jenkins | azure\ pipelines? | setup\.(?:py|cfg)
        | deprecation\ warnings? | translations? | code\ ?style | lint\w* | pep ?-?\ ?8
        | clean(?:ed|ing)?[ -]?ups? | tid(?:y|ied|ying) | f-strings? | cosmetics? | stylistic
      )(?![-\w]) .*
    | (?:.*[:-]\s)?document\b .*
    | .* \b(?:test|tests|test\ ?cases?|unit\ ?tests?|test\ suites?)$
    | (?:fix(?:e[sd]|ing)?|repair|update[ds]?|add(?:s|ed|ing)?|improve[ds]?|more|skip|xfail|extend
        |enable|disable|expand|refactor|remove|speed\ up|new|simplify|clean)\b
        .{0,30} \b(?:tests?|test\ ?cases?|unit\ ?tests?|benchmarks?)\b .*
    | (?:fix(?:e[sd]|ing)?|repair)\ (?:the\ |broken\ )*(?:builds?|examples?)\W*
    | (?:format|drop\b.*\bpython|modernize|remove\ (?:python|py)\ ?2|python\ ?3\b) .*
    """,
    re.VERBOSE | re.IGNORECASE,
)
_ABOUT_STYLE = re.compile(
    r"""
      .* \b(?: type\ ?hint\w* | (?:type\ )?annotat(?:ions?|e|ed|ing) | typing(?!\.) | typed
        | formatting | reformat\w* | whitespaces? | indentation | unused
        | pep ?-?\ ?(?:257|484|585|604)
      )\b .*
    """,
    re.VERBOSE | re.IGNORECASE,
)
_STYLE_PROJECTS = frozenset(
    {"mypy", "black", "astroid", "pydantic", "fastapi", "hypothesis", "docutils"}
)
"""Words of changes that affect annotations and layout only."""

_ALSO_TESTS = re.compile(
    r"\s*(?:,|;|\+|&|\band\b|\bwith\b|\bplus\b)\s*(?:also\s+)?(?:(?:add(?:s|ed|ing)?|update[ds]?|new)\s+)?"
    r"(?:(?:a|some|unit|more|regression|corresponding|the)\s+)*tests?(?:\s+cases?)?\W*$",
    re.IGNORECASE,
)
_FAULT = re.compile(
    r"\b(?:crash\w*|bugs?|exceptions?|incorrect\w*|wrong\w*|regression|traceback|false positives?"
    r"|false negatives?|[A-Z]\w*(?:Error|Exception|Warning))\b"
)
_TOOLS = ("black", "isort", "flake8", "pylint", "pyflakes", "pycodestyle", "ruff", "yapf", "mypy",
          "pyright", "bandit", "lgtm", "deepsource", "codacy", "pydocstyle")  # fmt: skip
_CI = re.compile(r"\b(?:CI|GHA)\b|^\W*$")


def _is_noise(subject: str, project: str) -> bool:
    subject = subject.strip()
    if _CHORE.fullmatch(subject):
        return True
    words = set(re.findall(r"[a-z0-9]+", subject.lower()))
    if _CI.search(subject) or any(tool in words for tool in _TOOLS if tool != project.lower()):
        return True
    if _FAULT.search(subject):
        return False
    subject = _ALSO_TESTS.sub("", subject)
    if project.lower() not in _STYLE_PROJECTS and _ABOUT_STYLE.fullmatch(subject):
        return True
    return _ABOUT_TEXTS.fullmatch(subject) is not None


# ------------------------------------------------------------------------------------------- faults

_FIX_SUBJECT = re.compile(
    r"""\b(?: (?:bug|hot)?fix(?:e[sd]|ing)? | bugs? | errors? | errors?\ out | erroneous\w*
      | crash\w* | wrong\w* | incorrect\w* | fail(?:s|ed|ing|ures?)? | regress\w* | exceptions?
      | traceback | broken | breaks? | breakage | breaking | issues? | (?:close|resolve)[sd]?
      | invalid | missing | prevent\w* | avoid\w* | correct(?:ly|s|ed|ing)? | hangs? | leak\w*
      | deadlock\w* | race | workaround | work\ around | doesn['’]?t | does\ not | don['’]?t
      | do\ not | can['’]?t | cannot | not\ work\w* | properly | accidental\w* | unexpected\w*
      | repair\w*
      | false\ (?:positive|negative)s? | \w+error | \w+exception | segfault\w*
    )\b""",
    re.VERBOSE | re.IGNORECASE,
)
_FIX_BODY = re.compile(
    r"\b(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?)(?:\s+(?:issue|bug|ticket))?:?\s+"
    r"(?:gh-|#|ticket|bug|[\w-]+/[\w.-]+#|https?://\S+/issues?)"
    r"|\btraceback\b|\bregression\b|\bthis bug\b|\bbug report\b",
    re.IGNORECASE,
)


def _is_fix(subject: str, body: str) -> bool:
    return _FIX_SUBJECT.search(subject) is not None or _FIX_BODY.search(body) is not None
