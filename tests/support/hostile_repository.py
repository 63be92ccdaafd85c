"""A repository whose configuration attacks its readers: each attack that runs leaves a canary."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.conftest import run_git

SECRET = "the-secret-outside"
HOOKS = (
    "post-index-change", "post-checkout", "pre-commit", "reference-transaction", "query-watchman",
    "fsmonitor-watchman", "post-merge", "pre-auto-gc",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class HostileRepository:
    """`canaries` is a folder where each attack that runs makes a file of its name."""

    root: Path
    canaries: Path

    @property
    def fired(self) -> list[str]:
        """The attacks that ran."""
        return sorted(path.name for path in self.canaries.iterdir())


def make_hostile(folder: Path) -> HostileRepository:
    """Build it below `folder`: fsmonitor, hooks, filters, aliases, pagers, a lazy `ext::` fetch."""
    root, canaries = folder / "hostile", folder / "canaries"
    outside = folder / "outside"
    for path in (root, canaries, outside):
        path.mkdir()
    (outside / "secret.py").write_text(f"password = '{SECRET}'\n")
    run_git(root, "init", "-q")
    (root / "app.py").write_text("def f():\n    return 1\n")
    (root / "lost.py").write_text("lost = True\n")
    (root / ".gitattributes").write_text("*.py filter=evil diff=evil\n")
    run_git(root, "add", "-A")
    run_git(root, "commit", "-q", "-m", "base")
    _remove_blob(root, run_git(root, "rev-parse", "HEAD:lost.py").strip())
    hooks = folder / "hooks"
    hooks.mkdir()
    for name in HOOKS:
        for place in (hooks, root / ".git" / "hooks"):
            place.mkdir(exist_ok=True)
            script = place / name
            script.write_text(f"#!/bin/sh\ntouch {canaries}/hook-{name}\n")
            script.chmod(0o755)
    _configure(root, canaries, outside, hooks)
    return HostileRepository(root, canaries)


def _remove_blob(root: Path, oid: str) -> None:
    (root / ".git" / "objects" / oid[:2] / oid[2:]).unlink()


def _configure(root: Path, canaries: Path, outside: Path, hooks: Path) -> None:
    def run(name: str) -> str:
        return f"touch {canaries}/{name}"

    included = canaries.parent / "included.cfg"
    included.write_text(f'[alias]\n\tls-tree = "!{run("included-alias")}"\n')
    settings = {
        "core.fsmonitor": run("fsmonitor") + "; true",
        "core.hooksPath": str(hooks),
        "core.worktree": str(outside),
        "core.pager": run("pager"),
        "core.editor": run("editor"),
        "core.sshCommand": run("ssh-command"),
        "core.askPass": run("askpass"),
        "core.gitProxy": run("proxy"),
        "core.alternateRefsCommand": run("alternate-refs"),
        "core.attributesFile": str(outside / "attributes"),
        "diff.external": run("diff-external"),
        "diff.evil.textconv": run("textconv"),
        "diff.evil.command": run("diff-command"),
        "filter.evil.clean": run("clean") + "; cat",
        "filter.evil.smudge": run("smudge") + "; cat",
        "filter.evil.process": run("filter-process"),
        "filter.evil.required": "true",
        "credential.helper": "!" + run("credential"),
        "gpg.program": run("gpg"),
        "uploadpack.packObjectsHook": run("pack-objects"),
        "alias.rev-parse": "!" + run("alias"),
        "alias.cat-file": "!" + run("alias"),
        "pager.ls-files": run("pager"),
        "include.path": str(included),
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.partialclonefilter": "blob:none",
        "remote.origin.url": f"ext::{run('ext-fetch')}",
        "remote.second.promisor": "true",
        "remote.second.vcs": "evil",
        "remote.second.url": "evil://host/x",
        "remote.third.promisor": "true",
        "remote.third.url": "ssh://127.0.0.1/x",
        "remote.third.uploadpack": run("upload-pack"),
        "protocol.allow": "always",
        "protocol.ext.allow": "always",
        "core.untrackedCache": "true",
        "core.splitIndex": "true",
        "feature.manyFiles": "true",
    }
    with (root / ".git" / "config").open("a") as config:
        for name, value in settings.items():
            section, _, variable = name.rpartition(".")
            first, _, second = section.partition(".")
            heading = f'{first} "{second}"' if second else first
            config.write(
                f'[{heading}]\n\t{variable} = "{value.replace(chr(34), chr(92) + chr(34))}"\n'
            )
