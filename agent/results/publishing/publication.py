"""Commits a patch on a new branch, pushes it, and opens a pull request.

The title and the model's explanation are untrusted: on GitHub a text can close issues, call people
and skip checks. So the message loses such words, and the description has foreign text in code
blocks only.
"""

from __future__ import annotations

import base64
import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from agent.errors import ConfigurationError, ForgeError, PatchshotError
from agent.repository import (
    CommitRefused,
    GitRepository,
    check_branch,
    check_branch_name,
    commit_changes,
    open_repository,
    user_settings,
)
from agent.results.publishing.forge import Forge, find_forge
from agent.run.record import Published, RunRecord
from agent.shared.terminal import counted, fence_around, inert
from agent.types import FileChange, Problem, Verdict

_SUBJECT = 72  # characters of a subject line that tools show whole
_THOUGHT = 2_000
_TESTS = 20
_LINE = 300
# GitHub takes 65,536 characters of a comment or a description.
_MOST = 60_000

_REFERENCE = re.compile(r"(#|GH-|/(?:issues|pull|merge_requests|work_items)/)(?=\d)", re.IGNORECASE)
_CI = r"(?:ci|actions|azurepipelines|azp)"
_SKIP = re.compile(rf"\[((?:skip|no)[ -]{_CI}|{_CI} skip)\]|\*\*\*(NO_CI)\*\*\*", re.IGNORECASE)
_TRAILER = re.compile(r"^([\w-]+)\s*:", re.MULTILINE)  # git and GitHub obey `skip-checks: true`
_ISSUE = re.compile(r"[\w.-]+/[\w.-]+#\d+|https?://[^\s?#]+/(?:issues|work_items)/\d+/?")


def commit_message(title: str, thought: str, source: str) -> str:
    """Return the message of a commit for an issue: its title, the explanation, the issue's name."""
    subject = _plain(" ".join(title.split())) or "the issue"
    first = textwrap.shorten(f"Fix: {subject}", _SUBJECT, placeholder="…")
    paragraphs = (" ".join(part.split()) for part in _plain(thought)[:_THOUGHT].split("\n\n"))
    body = [_TRAILER.sub(r"\1 -", textwrap.fill(p, _SUBJECT)) for p in paragraphs if p]
    return "\n\n".join([first, *body, *([f"Fixes {source}"] if is_issue(source) else [])]) + "\n"


def review_of(root: Path, address: str) -> str:
    """Return the review of a pull request of the project of `root`. Raises ForgeError."""
    with open_repository(root) as git:
        forge = find_forge(git.setting("remote.origin.url"))
    place, _, number = address.rpartition("/pull/")
    if place != f"{forge.server}/{forge.project}" or not number.isdecimal():
        raise ForgeError(f"{address} is no pull request of {forge.place}")
    if not (text := forge.review(int(number))):
        raise ForgeError(f"{address}: nobody who may write there has reviewed it yet")
    return text


def is_issue(source: str) -> bool:
    """Whether the source of a problem is an issue on GitHub or GitLab."""
    return _ISSUE.fullmatch(source) is not None


def describe_result(result: RunRecord, *, with_diff: bool = False) -> str:
    """Return what a run found as Markdown; `with_diff` adds as much of the diff as fits."""
    parts = [f"**{result.headline}**", fenced(result.message)]
    found = result.deciding
    if found is not None:
        parts += _tests("Failed before and pass now", found.fail_to_pass or found.newly_passing)
        parts += _tests("Fail now and passed before", found.newly_failing)
    if result.dirty:
        parts.append("The tests ran with uncommitted changes, which are not in the commit.")
    if result.thought:
        parts += ["The model's explanation:", fenced(result.thought[:_THOUGHT])]
    parts.append(_cost(result))
    if result.issue and is_issue(result.issue.source) and not with_diff:
        parts.append(f"Fixes {result.issue.source}")
    text = "\n\n".join(parts)
    if with_diff and result.diff:
        room = max(0, _MOST - len(text))
        cut = "\n[cut off]" if len(result.diff) > room else ""
        text += f"\n\nThe best patch:\n\n{fenced(result.diff[:room] + cut, 'diff')}"
    return f"{text}\n"


def fenced(text: str, language: str = "text") -> str:
    """Return untrusted text as a code block, which it cannot end."""
    fence = fence_around(text)
    return f"{fence}{language}\n{inert(text, '?').strip(chr(10))}\n{fence}"


def _plain(text: str) -> str:
    clean = inert(text, " ", kept="\n")
    return _SKIP.sub(r"(\1\2)", _REFERENCE.sub(r"\1 ", clean)).strip()


def _tests(heading: str, names: Sequence[str]) -> Iterator[str]:
    if names:
        more = [f"and {len(names) - _TESTS:,} more"] if len(names) > _TESTS else []
        yield f"{heading}:"
        yield fenced("\n".join([*(name[:_LINE] for name in names[:_TESTS]), *more]))


def _cost(result: RunRecord) -> str:
    used = result.usage
    tokens = used.input_tokens + used.output_tokens
    price = "" if used.cost_usd is None else f", ${used.cost_usd:.4f}"
    calls = counted(used.calls, "call")
    model = re.sub(r"[^\w./:-]", "?", result.model or "")
    return (
        f"Made by patchshot: {calls}{f' of `{model}`' if model else ''}, {tokens:,} tokens{price}."
    )


_OF_NETWORK = (
    "http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY",
    "GIT_SSL_CAINFO",
)  # fmt: skip
_OF_CONNECTIONS = ("http.proxy", "http.sslcainfo", "http.sslcapath")


@dataclass(frozen=True, slots=True)
class Publication:
    """What the user asked for. `message` is "" for one that is made from the issue."""

    branch: str
    message: str = ""
    pull_request: bool = False


@dataclass(frozen=True, slots=True)
class PublicationPlan:
    """What is to be done in the repository at `root`, on top of the commit `base`.

    `forge` and `target`, the branch that the request goes to, are there for a request only.
    """

    wanted: Publication
    root: Path
    base: str
    forge: Forge | None = None
    target: str = ""


@dataclass(frozen=True, slots=True)
class PublicationOutcome:
    """What was made, None if there is no commit; and why not all was made, "" if it was."""

    published: Published | None
    failure: str = ""


def prepare(
    wanted: Publication, root: Path, base: str, *, resumed: bool = False
) -> PublicationPlan:
    """Check that a commit on top of `base` can be made, pushed and requested.

    `resumed`: the branch may be there already. Raises ConfigurationError, RepositoryError and
    ForgeError.
    """
    with open_repository(root) as git:
        if resumed:
            check_branch_name(git, wanted.branch)
        else:
            check_branch(git, wanted.branch, base)
        if not wanted.pull_request:
            return PublicationPlan(wanted, root, base)
        forge = find_forge(git.setting("remote.origin.url"))
        target = _target(git, forge)
        if target == wanted.branch:
            raise ConfigurationError(
                f"--branch {target}: the request would go to this branch; give another name"
            )
        if not resumed:
            if forge.has_branch(wanted.branch):
                raise _exists(forge, wanted.branch)
            _push(git, forge, base, wanted.branch, trial=True)
        return PublicationPlan(wanted, root, base, forge, target)


def publish(
    plan: PublicationPlan, changes: Sequence[FileChange], result: RunRecord
) -> PublicationOutcome:
    """Commit, push and request. Ctrl-C is a failure too: the patch is paid for."""
    made: Published | None = None
    try:
        with open_repository(plan.root) as git:
            message = plan.wanted.message or _message(result)
            commit = commit_changes(git, changes, plan.base, plan.wanted.branch, message)
            if isinstance(commit, CommitRefused):
                return PublicationOutcome(None, f"nothing was committed: {commit.reason}")
            made = Published(branch=plan.wanted.branch, commit=commit, pull_request=None)
            if plan.forge is None:
                return PublicationOutcome(made)
            _push(git, plan.forge, commit, plan.wanted.branch)
        address = plan.forge.open_request(
            plan.wanted.branch,
            plan.target,
            message.strip().partition("\n")[0],
            describe_result(result),
            draft=result.verdict != Verdict.VERIFIED.value or result.dirty,
        )
        return PublicationOutcome(made.model_copy(update={"pull_request": address}))
    except PatchshotError as error:
        return PublicationOutcome(made, str(error))
    except KeyboardInterrupt:
        return PublicationOutcome(made, "it was interrupted")
    except Exception as error:  # noqa: BLE001  (a bug must not lose a diff that was paid for)
        return PublicationOutcome(made, repr(error))


def _message(result: RunRecord) -> str:
    issue = result.issue or Problem("", "", "")
    return commit_message(issue.title, result.thought, issue.source)


def _target(git: GitRepository, forge: Forge) -> str:
    """Return the branch that is checked out if the server has it, else the default branch."""
    default = forge.default_branch()
    here = git.call("symbolic-ref", "--quiet", "HEAD", outside=True).stdout.decode(errors="replace")
    branch = here.strip().removeprefix("refs/heads/")
    return branch if branch and branch != default and forge.has_branch(branch) else default


def _push(
    git: GitRepository, forge: Forge, commit: str, branch: str, *, trial: bool = False
) -> None:
    """Push a commit as a new branch. Raises ForgeError.

    No setting of the repository is in force; the token is sent to the forge's own address only.
    """
    reference = f"refs/heads/{branch}"
    output = git.call(
        "push", "--porcelain", "--no-verify", "--no-signed", "--no-recurse-submodules",
        f"--force-with-lease={reference}:",  # the branch must not be there, or hold the commit
        *(["--dry-run"] if trial else []),
        forge.push_url, f"{commit}:{reference}",
        configuration=("http.followRedirects=false",),
        # Only the protocol of the forge is allowed.
        variables={"GIT_ALLOW_PROTOCOL": urlsplit(forge.server).scheme},
        secrets={**_network(), **_settings(git, forge)},
        outside=True,
    )  # fmt: skip
    if output.code == 0:
        return
    if b"stale info" in output.stdout or b"already exists" in output.stdout:
        raise _exists(forge, branch)
    said = forge.hide(output.complaint)
    raise ForgeError(f"{forge.place}: cannot be pushed to ({said}); see what the token may do")


def _exists(forge: Forge, branch: str) -> ForgeError:
    return ForgeError(f"--branch {branch}: {forge.place} has such a branch; give another name")


def _settings(git: GitRepository, forge: Forge) -> Mapping[str, str]:
    """Return variables of git that hold the token, and the user's own settings of connections."""
    pair = base64.b64encode(f"x-access-token:{forge.token}".encode()).decode("ascii")
    users = user_settings(git)
    settings = {name: users[name] for name in _OF_CONNECTIONS if name in users}
    settings[f"http.{forge.server}/.extraHeader"] = f"Authorization: Basic {pair}"
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings.items()):
        variables |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def _network() -> Mapping[str, str]:
    """Return what a connection needs of the user's environment. A proxy may have a password."""
    kept = {name: os.environ[name] for name in _OF_NETWORK if name in os.environ}
    certificates = os.environ.get("SSL_CERT_FILE")  # what httpx reads
    return {"GIT_SSL_CAINFO": certificates, **kept} if certificates else kept
