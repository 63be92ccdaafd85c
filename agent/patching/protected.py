"""Files that edits may touch only if the user allows it, and files that an edit would be lost in.
The first are what a tool of a developer or a service runs or obeys by itself when a folder is
opened, built, committed or pushed. The others are ignored by git (gitignore(5)), or generated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, lru_cache


def first_match(path: str, patterns: Collection[str]) -> str | None:
    """Return the first pattern that covers the path."""
    name = path.rsplit("/", 1)[-1]
    for pattern in patterns:
        if fnmatchcase(path if "/" in pattern else name, pattern):
            return pattern
    return None


@dataclass(frozen=True, slots=True)
class ProtectedClass:
    """Files that are protected for one reason, by names of the folded path (see `folded`)."""

    why: str
    folders: frozenset[str]
    patterns: tuple[str, ...]

    def rule(self, path: str) -> str | None:
        """Return the folder or pattern that covers a folded path."""
        parts = path.split("/")
        folder = next((part for part in parts if part in self.folders), None)
        return folder or first_match(path, self.patterns)


# Names with a final slash are folders at any depth, or files of that name.
_TABLE = """
the tools of a developer run what is in an environment
    .conda/ .devenv/ .direnv/ .eggs/ .nox/ .pixi/ .tox/ .venv/ .virtualenv/ __pycache__/
    __pypackages__/ node_modules/ site-packages/ venv/* */venv/bin/* */venv/lib/* */venv/lib64/*
    pyvenv.cfg bin/python bin/python3* */bin/python */bin/python3* bin/activate* */bin/activate*
an editor runs its tasks and plugins when it opens the folder or a file
    .emacs.d/ .externaltoolbuilders/ .fleet/ .idea/ .nvim/ .settings/ .theia/ .vim/ .vscode/ .zed/
    nbproject/ *.code-workspace *.sublime-project *.sublime-workspace *.iml *.ipr .exrc _exrc .vimrc
    _vimrc .gvimrc .nvimrc .nvim.lua .lazy.lua .vimspector.json .local.vimrc .localvimrc .lvimrc
    .project .dir-locals.el .dir-locals-2.el .projectile .kateconfig
an AI agent takes commands, hooks, servers or orders from it
    .agents/ .amazonq/ .augment/ .claude/ .claude-plugin/ .cline/ .clinerules/ .codeium/ .codex/
    .continue/ .crush/ .cursor/ .factory/ .gemini/ .goose/ .junie/ .kilocode/ .kiro/ .opencode/
    .openhands/ .qwen/ .roo/ .trae/ .windsurf/ .mcp.json .aider* .cursorrules .windsurfrules
    .roomodes .goosehints agents.md agents.override.md claude.md claude.local.md gemini.md
    copilot-instructions.md .github/instructions/* .github/prompts/* .github/agents/*
    .github/hooks/* .github/chatmodes/* .crush.json opencode.json opencode.jsonc crush.json
a package manager runs it, or takes packages from where it says
    .bundle/ .pnpm-store/ .yarn/ .yarnrc .yarnrc.y*ml .pnpmfile.cjs .pnpmfile.mjs .npmrc .pnp.*js
    .bunfig.toml bunfig.toml pip.conf .condarc nuget.config .cargo/config .cargo/config.toml
    */.cargo/config */.cargo/config.toml
every build is started through it
    .mvn/ gradlew gradlew.bat mvnw mvnw.cmd gradle/wrapper/* */gradle/wrapper/* .bazelrc .bazeliskrc
    tools/bazel .buckconfig directory.build.rsp .jvmopts .sbtopts
a development container, or an IDE in a cloud, runs its commands
    .codesandbox/ .devcontainer/ .gitpod/ .idx/ .stackblitz/ .devcontainer.json .gitpod.y*ml
    .gitpod.dockerfile .stackblitzrc .replit replit.nix devfile.y*ml .devfile.y*ml
a version control system runs its hooks and filters, or fetches what it names
    .bzr/ .hg/ .jj/ .pijul/ .repo/ .sl/ .svn/ _darcs/ .hgrc .hgsub .lfsconfig head
a shell, version manager or debugger loads it when it starts in the folder
    .asdf/ .mise/ .envrc .mise.toml mise.toml .mise.*.toml mise.*.toml .rtx.toml mise/config.toml
    .config/mise.toml .config/mise/* .tool-versions .autoenv .autoenv.zsh .rvmrc .rbenv-vars .pryrc
    .irbrc .gdbinit .lldbinit .pdbrc .pdbrc.py devenv.nix patchshot.toml
hooks of git run when somebody commits, pushes or checks out
    .git-hooks/ .githooks/ .hooks/ .husky/ .lefthook/ .overcommit/ .huskyrc .huskyrc.*
    husky.config.* .pre-commit-config.y*ml .pre-commit-hooks.y*ml .overcommit.y*ml lefthook.y*ml
    .lefthook.y*ml lefthook.toml .lefthook.toml lefthook-local.y*ml .simple-git-hooks.*
    simple-git-hooks.* .lintstagedrc .lintstagedrc.* lint-staged.config.*
a service runs it with secrets of its own when the patch is pushed
    .github/workflows/* .github/actions/* .gitea/workflows/* .gitea/actions/* .forgejo/workflows/*
    .forgejo/actions/* .woodpecker/* .woodpecker.y*ml .gitlab-ci.y*ml *.gitlab-ci.y*ml .gitlab/ci/*
    .circleci/* .buildkite/* .teamcity/* .travis.y*ml .cirrus.y*ml .cirrus.star .drone.y*ml
    .drone.star .drone.jsonnet .appveyor.y*ml appveyor.y*ml azure-pipelines*.y*ml .azure-pipelines/*
    .azuredevops/* .vsts-ci.y*ml bitbucket-pipelines.y*ml jenkinsfile jenkinsfile.* *.jenkinsfile
    .jenkins/* cloudbuild.y*ml cloudbuild.json buildspec.y*ml .semaphore/* codefresh.y*ml
    .build.y*ml .builds/* wercker.y*ml .zuul.y*ml .zuul.d/* .copr/* .packit.y*ml .harness/*
    .tekton/* screwdriver.yaml .readthedocs.y*ml netlify.toml vercel.json
it decides what the tests mean
    conftest.py
it pins what a package manager installs
    poetry.lock uv.lock pdm.lock pipfile.lock pylock.toml pylock.*.toml package-lock.json
    npm-shrinkwrap.json yarn.lock pnpm-lock.yaml cargo.lock gemfile.lock composer.lock go.sum
    pixi.lock conda-lock.yml bun.lock bun.lockb deno.lock flake.lock mix.lock pubspec.lock
    gradle.lockfile packages.lock.json
"""

PROTECTED = tuple(
    ProtectedClass(
        why,
        frozenset(name.removesuffix("/") for name in names.split() if name.endswith("/")),
        tuple(name for name in names.split() if not name.endswith("/")),
    )
    for why, names in re.findall(r"^(\S.*)\n((?: .*\n)+)", _TABLE, re.MULTILINE)
)
"""What edits may touch only if the user allows it. The first class that covers a path counts."""


# Far more than people write. A hostile file may not take the time of a run.
_MOST_RULES = 2_000
_LONGEST_RULE = 300

_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class _Rule:
    """One line. `parts` are its patterns by folder; `**` stands for any number of folders."""

    text: str
    parts: tuple[str, ...]
    negated: bool
    folders_only: bool


def ignoring_rule(path: str, read: Callable[[str], bytes | None]) -> str | None:
    """Return the rule that covers a path, with the name of its file; None where none does."""
    parts = path.split("/")
    for depth in range(1, len(parts) + 1):
        rule = _deciding(parts[:depth], read, folder=depth < len(parts))
        if rule is not None:
            return rule
    return None


def _deciding(
    parts: Sequence[str], read: Callable[[str], bytes | None], *, folder: bool
) -> str | None:
    """Return the last rule that covers a file or folder itself, from the innermost file."""
    for level in reversed(range(len(parts))):
        name = "/".join((*parts[:level], ".gitignore"))
        for rule in reversed(_rules(read(name) or b"")):
            covers = folder or not rule.folders_only
            if covers and _fits(rule.parts, tuple(parts[level:])):
                return None if rule.negated else f"{rule.text} of {name}"
    return None


@lru_cache(64)
def _rules(data: bytes) -> tuple[_Rule, ...]:
    lines = data.decode("utf-8-sig", "replace").splitlines()[:_MOST_RULES]
    return tuple(rule for line in lines for rule in _parsed(line))


def _parsed(line: str) -> Iterator[_Rule]:
    text = line if line.endswith("\\ ") else line.rstrip(" ")
    negated = text.startswith("!")
    pattern = text[negated:]
    if not pattern.strip("/") or text.startswith("#") or len(text) > _LONGEST_RULE:
        return
    folders_only = pattern.endswith("/")
    parts = pattern.rstrip("/").split("/")
    if len(parts) == 1:
        parts = ["**", *parts]
    elif not parts[0]:
        parts = parts[1:]
    yield _Rule(text, tuple(map(_translated, parts)), negated, folders_only)


def _translated(part: str) -> str:
    """Write a part as `fnmatch` has it, which knows neither `[^a]` nor a backslash."""
    plain = _ESCAPED.sub(lambda m: f"[{m[1]}]" if m[1] in "*?[" else m[1], part)
    return plain.replace("[^", "[!")


def _fits(patterns: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    """Whether the patterns match all of the parts; each pair is compared once."""

    @cache
    def fits(at: int, part: int) -> bool:
        if at == len(patterns):
            return part == len(parts)
        if patterns[at] == "**":
            if at + 1 == len(patterns):  # `a/**` covers what is in `a`, not `a` itself
                return part < len(parts)
            return any(fits(at + 1, later) for later in range(part, len(parts) + 1))
        is_match = part < len(parts) and fnmatchcase(parts[part], patterns[at])
        return is_match and fits(at + 1, part + 1)

    return fits(0, 0)


# Generators mark their files at the top: `@generated` (Buck, Phabricator), and the sentence of
# https://go.dev/s/generatedcode, which others write in their own words.
_HEAD = 1500
_MARK = re.compile(
    r"^\s*(?:#|//|/\*|\*|--|;|<!--|%|\"\"\"|''')[^\n]*"
    r"(?:@generated\b|\bgenerated\b[^\n]*\bdo not (?:edit|modify)\b"
    r"|\bdo not (?:edit|modify)\b[^\n]*\bgenerated\b)",
    re.IGNORECASE | re.MULTILINE,
)


def is_generated(content: bytes) -> bool:
    """Whether a comment at the top of a file says that a program generates it."""
    return _MARK.search(content[:_HEAD].decode("utf-8", "replace")) is not None
