"""Attacks by the repository itself on programs that read or copy it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from tests.attack.cases import Case
from tests.conftest import run_git
from tests.support.attack_repository import SECRET, Hostile


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryCase(Case):
    """An attack by a repository that `plant` arms.

    `trigger` are git commands that set it off in a user's shell; the control expects a canary, or
    the secret in their output. `below` is the folder that is solved for. `watched` must stay
    unchanged, including time stamps.
    """

    level: str = "repository"
    plant: Callable[[Hostile], None]
    trigger: tuple[tuple[str, ...], ...]
    below: str = ""
    watched: str = "."


def _hooks(hostile: Hostile) -> None:
    for name in ("post-checkout", "pre-commit", "post-index-change", "reference-transaction"):
        hostile.script(hostile.root / ".git" / "hooks" / name, f"hook-{name}")


def _hooks_path(hostile: Hostile) -> None:
    hostile.script(hostile.root / "ci" / "post-checkout", "hooks-path")
    hostile.set(core__hooksPath="ci")


def _fsmonitor(hostile: Hostile) -> None:
    hostile.set(core__fsmonitor=hostile.runs("fsmonitor"), core__untrackedCache="true")


def _filters(hostile: Hostile) -> None:
    (hostile.root / ".gitattributes").write_text("*.py filter=evil\n")
    run_git(hostile.root, "add", ".gitattributes")
    run_git(hostile.root, "commit", "-q", "-m", "attributes")
    hostile.set(filter__evil__clean=hostile.runs("clean") + "; cat")
    hostile.set(filter__evil__smudge=hostile.runs("smudge") + "; cat")
    (hostile.root / "app.py").write_text("def f():\n    return 4\n")


def _diff_drivers(hostile: Hostile) -> None:
    (hostile.root / ".gitattributes").write_text("*.py diff=evil\n")
    hostile.script(hostile.outside / "textconv.sh", "textconv")
    hostile.set(diff__evil__textconv=str(hostile.outside / "textconv.sh"))
    hostile.set(diff__external=str(hostile.outside / "textconv.sh"))
    (hostile.root / "app.py").write_text("def f():\n    return 4\n")


def _aliases(hostile: Hostile) -> None:
    hostile.set(alias__evil="!" + hostile.runs("alias"), alias__status="!" + hostile.runs("alias"))
    hostile.set(core__pager=hostile.runs("pager"), pager__log="true")
    hostile.set(core__editor=hostile.runs("editor"), gpg__program=hostile.runs("gpg"))


def _include(hostile: Hostile) -> None:
    included = hostile.root / "included.cfg"
    included.write_text(f'[core]\n\tfsmonitor = "{hostile.runs("included")}"\n')
    hostile.set(include__path=str(included))


def _promisor(hostile: Hostile) -> None:
    oid = run_git(hostile.root, "rev-parse", "HEAD:app.py").strip()
    (hostile.root / ".git" / "objects" / oid[:2] / oid[2:]).unlink()
    hostile.script(hostile.outside / "fetch.sh", "ext-fetch")
    hostile.set(extensions__partialClone="origin", remote__origin__promisor="true")
    hostile.set(
        remote__origin__url=f"ext::{hostile.outside}/fetch.sh", protocol__ext__allow="always"
    )


def _ssh(hostile: Hostile) -> None:
    oid = run_git(hostile.root, "rev-parse", "HEAD:app.py").strip()
    (hostile.root / ".git" / "objects" / oid[:2] / oid[2:]).unlink()
    hostile.script(hostile.outside / "ssh.sh", "ssh-command")
    hostile.set(extensions__partialClone="origin", remote__origin__promisor="true")
    hostile.set(
        remote__origin__url="ssh://127.0.0.1/x", core__sshCommand=f"{hostile.outside}/ssh.sh"
    )


def _worktree(hostile: Hostile) -> None:
    hostile.set(core__worktree=str(hostile.outside))


def _embedded(hostile: Hostile) -> None:
    bare = hostile.root / "fixtures" / "bare"
    bare.mkdir(parents=True)
    run_git(bare, "init", "-q", "--bare")
    run_git(hostile.root, "push", "-q", str(bare), "HEAD:refs/heads/main")
    run_git(bare, "symbolic-ref", "HEAD", "refs/heads/main")
    run_git(bare, "config", "core.bare", "false")
    run_git(bare, "config", "core.worktree", str(hostile.outside))
    run_git(bare, "config", "core.fsmonitor", hostile.runs("embedded"))


def _tokens(hostile: Hostile) -> None:
    hostile.set(remote__origin__url=f"https://user:{SECRET}@example.invalid/x.git")
    hostile.set(http__extraHeader=f"Authorization: Bearer {SECRET}")


def _future(hostile: Hostile) -> None:
    (hostile.root / "app.py").write_text(f"def f():\n    return '{SECRET}'\n")
    run_git(hostile.root, "commit", "-q", "-a", "-m", f"fix: {SECRET}")
    run_git(hostile.root, "tag", "v2")
    run_git(hostile.root, "checkout", "-q", "-b", "work", "HEAD~1")
    (hostile.root / "app.py").write_text("def f():\n    return 2 # wip\n")
    run_git(hostile.root, "stash")
    run_git(hostile.root, "notes", "add", "-m", SECRET)


def _hard_links(hostile: Hostile) -> None:
    """Plant nothing: the attack runs in the copy and overwrites every object."""


def _links(hostile: Hostile) -> None:
    (hostile.root / "tracked.py").symlink_to(hostile.outside / "secret.py")
    (hostile.root / "folder").symlink_to(hostile.outside)
    run_git(hostile.root, "add", "-A")
    run_git(hostile.root, "commit", "-q", "-m", "links")
    (hostile.root / "untracked.py").symlink_to(hostile.outside / "secret.py")


def _odd_files(hostile: Hostile) -> None:
    os.mkfifo(hostile.root / "pipe.py")
    (hostile.root / "app.py").unlink()
    os.mkfifo(hostile.root / "app.py")
    with (hostile.root / "sparse.py").open("wb") as file:
        file.truncate(2**40)


def _submodule(hostile: Hostile) -> None:
    commit = run_git(hostile.root, "rev-parse", "HEAD").strip()
    (hostile.root / ".gitmodules").write_text('[submodule "x"]\n\tpath = x\n\turl = ./x\n')
    run_git(hostile.root, "update-index", "--add", "--cacheinfo", f"160000,{commit},x")
    run_git(hostile.root, "add", ".gitmodules")
    run_git(hostile.root, "commit", "-q", "-m", "submodule")
    run_git(hostile.root, "init", "-q", "x")
    run_git(hostile.root / "x", "config", "core.fsmonitor", hostile.runs("submodule"))
    hostile.set(submodule__x__url="./x", submodule__x__update="!" + hostile.runs("update"))


_GIT = "private git directory"

REPOSITORY_CASES = (
    RepositoryCase(name="hooks",
        does="has hooks that run on checkout, commit, index and reference changes",
        stopped_by="core.hooksPath=/dev/null, " + _GIT, plant=_hooks,
        trigger=(("checkout", "-q", "-b", "other"),)),
    RepositoryCase(name="core.hooksPath", does="has hooks in a tracked folder",
        stopped_by="core.hooksPath=/dev/null, " + _GIT, plant=_hooks_path,
        trigger=(("checkout", "-q", "-b", "other"),)),
    RepositoryCase(name="fsmonitor", does="names a program that runs whenever the index is read",
        stopped_by=_GIT, plant=_fsmonitor, trigger=(("status",),)),
    RepositoryCase(name="filters",
        does="has clean and smudge filters, and a dirty file to use them on",
        stopped_by=_GIT + "; blobs are read as they are", plant=_filters,
        trigger=(("status",), ("diff",))),
    RepositoryCase(name="diff drivers", does="has a textconv and an external diff program",
        stopped_by=_GIT + "; --no-ext-diff, --no-textconv", plant=_diff_drivers,
        trigger=(("diff",),)),
    RepositoryCase(name="aliases, pagers, editors",
        does="names programs for aliases, the pager, the editor, signatures", stopped_by=_GIT,
        plant=_aliases, trigger=(("evil",), ("-p", "log"))),
    RepositoryCase(name="included settings", does="includes a tracked file into its settings",
        stopped_by=_GIT, plant=_include, trigger=(("status",),)),
    RepositoryCase(name="promisor with ext::",
        does="lacks an object, which git would fetch by running a program",
        stopped_by="GIT_NO_LAZY_FETCH, GIT_ALLOW_PROTOCOL, " + _GIT, plant=_promisor,
        trigger=(("cat-file", "-p", "HEAD:app.py"),)),
    RepositoryCase(name="promisor with ssh",
        does="lacks an object, and names the program to fetch it by ssh",
        stopped_by="GIT_NO_LAZY_FETCH, GIT_ALLOW_PROTOCOL, " + _GIT, plant=_ssh,
        trigger=(("cat-file", "-p", "HEAD:app.py"),)),
    RepositoryCase(name="core.worktree", does="says that its files lie in a folder of the user's",
        stopped_by=_GIT, plant=_worktree, trigger=(("add", "-A"), ("diff", "--cached"))),
    RepositoryCase(name="embedded bare repository",
        does="tracks a folder that git takes for a repository, with settings of its own",
        stopped_by="safe.bareRepository=explicit, " + _GIT, plant=_embedded,
        trigger=(("-C", "fixtures/bare", "status"),), below="fixtures/bare"),
    RepositoryCase(name="submodule", does="has a submodule whose settings run programs",
        stopped_by="submodules are not entered", plant=_submodule,
        trigger=(("status",), ("submodule", "update"))),
    RepositoryCase(name="tokens in .git/config",
        does="code under test reads the settings of its repository",
        stopped_by="private copy without remotes and settings", plant=_tokens,
        trigger=(("config", "--list"),)),
    RepositoryCase(name="future fix in history",
        does="code under test looks for the fix in later commits, tags, stashes, notes, reflogs",
        stopped_by="private copy that holds one commit and its tree", plant=_future,
        trigger=(("log", "--all", "-p"),)),
    RepositoryCase(name="hard-linked objects",
        does="code under test overwrites every object that it can reach",
        stopped_by="objects are copied, never linked or borrowed", plant=_hard_links, trigger=()),
    RepositoryCase(name="links to files of the user",
        does="has tracked and untracked links to a secret outside",
        stopped_by="links are never followed", plant=_links,
        trigger=(("diff", "--no-index", "/dev/null", "folder/secret.py"),)),
    RepositoryCase(name="pipes and giant files",
        does="has a pipe in the place of a tracked file, and a sparse file of a terabyte",
        stopped_by="only regular files are opened, up to a size", plant=_odd_files, trigger=(),
        watched=".git"),
)  # fmt: skip
