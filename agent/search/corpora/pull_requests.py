"""The pull requests of past commits, told from merge titles, squashed titles and trailers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

MAX_TITLE = 200  # characters

_MERGES = (
    re.compile(r"^Merge pull request #(?P<number>\d{1,9}) from \S+"),  # GitHub, Gitea
    re.compile(r"^Merged in .{1,200} \(pull request #(?P<number>\d{1,9})\)"),  # Bitbucket
    re.compile(r"^Merged PR (?P<number>\d{1,9}): (?P<title>.+)"),  # Azure DevOps
)
_SQUASHED = re.compile(r"^(?P<title>.+?) \((?P<mark>[#!])(?P<number>\d{1,9})\)$")
_GITLAB = re.compile(r"^See merge request \S{0,300}!(?P<number>\d{1,9})$", re.MULTILINE)
_TRAILER = re.compile(
    r"^(?:PR-URL|Pull-Request|Pull Request|Reviewed-on): (?P<link>https?://[^\s<>\"]{1,300})?"
    r"(?:#(?P<number>\d{1,9}))?$",
    re.MULTILINE | re.IGNORECASE,
)
_LINK = re.compile(r"/(?:pull|pulls|pull-requests|merge_requests)/(\d{1,9})(?:[/#?]|$)")


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull or merge request. `mark` is "#" or "!"; `title` and `link` are "" if unknown."""

    number: int
    title: str = ""
    link: str = ""
    mark: str = "#"

    @property
    def label(self) -> str:
        """`#12 Title`, `!12 Title` or `#12`."""
        return f"{self.mark}{self.number} {self.title}".rstrip()


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """A commit's parents and message."""

    commit: str
    parents: tuple[str, ...]
    subject: str
    body: str


def parse_messages(output: bytes) -> Iterator[CommitMessage]:
    """Parse `<id> NUL <parents> NUL <subject> NUL <body> NUL` for each commit, with line feeds
    between commits.
    """
    fields = output.decode("utf-8", "replace").split("\0")
    for at in range(0, len(fields) - 3, 4):
        commit, parents, subject, body = fields[at : at + 4]
        yield CommitMessage(commit.strip(), tuple(parents.split()), subject, body)


def pull_requests(messages: Sequence[CommitMessage], project: str) -> Mapping[str, PullRequest]:
    """Return the pull request of each commit that has one.

    `messages` are newest first, and the first is that of the newest commit. A merge into the main
    line (the first parents of the newest commit) gives its pull request to all commits that it
    brought in, unless their own message names one. `project` as of `project_name`.
    """
    by_id = {message.commit: message for message in messages}
    found: dict[str, PullRequest] = {}
    merges: list[CommitMessage] = []
    main = messages[0].commit if messages else ""
    line: set[str] = set()
    while main in by_id and main not in line:
        line.add(main)
        merges.append(by_id[main])
        main = next(iter(by_id[main].parents), "")
    seen = set(line)
    for merge in reversed(merges):  # the oldest merge brought in what several can reach
        own = named_in(merge, project)
        waiting = list(merge.parents[1:])
        while waiting:
            commit = waiting.pop()
            if commit in seen or commit not in by_id:
                continue
            seen.add(commit)
            waiting.extend(by_id[commit].parents)
            if own is not None:
                found[commit] = own
    for message in messages:
        named = named_in(message, project)
        if named is not None:
            found[message.commit] = named
    return found


def named_in(message: CommitMessage, project: str) -> PullRequest | None:
    """Return the pull request that a message names, if any."""
    first_line = message.body.strip().partition("\n")[0].strip()
    for pattern in _MERGES:
        if match := pattern.match(message.subject):
            title = match.groupdict().get("title") or first_line
            return _made(int(match["number"]), title, "#", project)
    if match := _GITLAB.search(message.body):
        return _made(int(match["number"]), first_line, "!", project)
    if match := _SQUASHED.match(message.subject):
        return _made(int(match["number"]), match["title"], match["mark"], project)
    for match in _TRAILER.finditer(message.body):
        if match["link"] and (number := _LINK.search(match["link"])):
            mark = "!" if "merge_requests" in match["link"] else "#"
            title = message.subject[:MAX_TITLE]
            return PullRequest(int(number[1]), title, match["link"], mark)
        if match["number"]:
            return _made(int(match["number"]), message.subject, "#", project)
    return None


def _made(number: int, title: str, mark: str, project: str) -> PullRequest:
    host, _, path = project.partition("/")
    link = ""
    if path and "." in host:
        place = "pull"
        if mark == "!":
            place = "-/merge_requests"
        elif "bitbucket" in host:
            place = "pull-requests"
        link = f"https://{host}/{path}/{place}/{number}"
    if title.startswith("See merge request "):
        title = ""
    return PullRequest(number, title[:MAX_TITLE], link, mark)
