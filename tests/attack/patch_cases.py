"""Attacks by a model's reply: refused, or without effect, in every shape that can say them."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from agent.types import CreateFile, DeleteFile, Edit, RenameFile, SearchReplace
from tests.attack.cases import Case
from tests.support.attack_world import SECRET
from tests.support.reply_shapes import as_diff, as_envelope, as_json

_SHAPES = (as_json, as_diff, as_envelope)
_EVIL = "owned = True\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchCase(Case):
    """A reply, or one attack in several replies.

    `edits` are written out in every shape; `replies` are taken as they are. `harmless`: the reply
    may be applied, if it does nothing that `World.evidence` knows. `control`: how the attack works
    elsewhere: by an applier that joins paths ("naive"), by `git apply` ("git"); "" if by neither.
    """

    level: str = "patch"
    edits: tuple[tuple[Edit, ...], ...] = ()
    replies: tuple[str, ...] = ()
    harmless: bool = False
    control: str = ""

    def texts(self) -> Sequence[str]:
        """Every reply, once."""
        written = [shape(edits) for edits in self.edits for shape in _SHAPES]
        return tuple(dict.fromkeys([*self.replies, *written]))


def _creates(*paths: str) -> tuple[tuple[Edit, ...], ...]:
    return tuple((CreateFile(path, _EVIL),) for path in paths)


def _git(path: str, header: str, body: str = "") -> str:
    return f"diff --git a/{path} b/{path}\n{header}\n{body}"


def _new(path: str, line: str, mode: str = "100644") -> str:
    header = f"new file mode {mode}\nindex 0000000..1111111"
    return _git(path, header, f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{line}\n")


def _bomb(size: int) -> str:
    """A binary patch of a few kilobytes that unpacks to `size` bytes (gitformat: base85 lines)."""
    packed = zlib.compress(b"\0" * size, 9)
    lines = []
    for start in range(0, len(packed), 52):
        part = packed[start : start + 52]
        count = chr(ord("A") + len(part) - 1) if len(part) <= 26 else chr(ord("a") + len(part) - 27)
        padded = part + b"\0" * (-len(part) % 4)
        lines.append(count + base64.b85encode(padded).decode())
    header = "new file mode 100644\nindex 0000000..1111111\nGIT binary patch"
    return _git(
        "bomb.bin",
        header,
        f"literal {size}\n" + "\n".join(lines) + "\n\nliteral 0\nHcmV?d00001\n\n",
    )


_PATHS = (
    PatchCase(name="`..` in a path",
        does="creates, changes, deletes and renames to files above the repository",
        stopped_by="path rules",
        edits=(
            *_creates("../outside/new.py", "pkg/../../outside/new.py", "./../outside/new.py"),
            (SearchReplace("../outside/secret.py", f"value = '{SECRET}'\n", _EVIL),),
            (DeleteFile("../outside/secret.py"),),
            (RenameFile("app.py", "../outside/new.py"),),
            (RenameFile("../outside/secret.py", "stolen.py"),),
        ),
        replies=('--- "a/\\056\\056/x"\n+++ "b/\\056\\056/outside/new.py"\n@@ -0,0 +1 @@\n+x\n',),
        control="naive"),
    PatchCase(name="absolute paths", does="writes `/...`, `//host/...`, `C:\\...`, `~/...`",
        stopped_by="path rules",
        edits=_creates("{outside}/new.py", "/{outside}/new.py", "C:\\new.py", "~/new.py"),
        control="naive"),
    PatchCase(name=".git in any spelling",
        does="writes hooks and settings: .git, .GIT, `.git `, `.git.`, git~1, zero-width, NFKC",
        stopped_by="path rules on the folded name",
        edits=_creates(
            *(".git/hooks/post-checkout", ".GIT/config", ".Git/config", ".git /config"),
            *(
                ".git./config",
                "git~1/config",
                "GIT~1/config",
                ".g\u200cit/config",
                ".git\u200b/config",
            ),
            *(
                "\uff0egit/config",
                ".\uff47it/config",
                ".git::$INDEX_ALLOCATION/config",
                ".git\\config",
            ),
            *("pkg/.git/config", ".git", "pkg/../.git/config", ".git//config", "./.git/config"),
        ),
        replies=(
            "diff --git a/.git/HEAD b/.git/HEAD\ndeleted file mode 100644\n"
            "--- a/.git/HEAD\n+++ /dev/null\n@@ -1 +0,0 @@\n-ref: refs/heads/main\n",
        ),
        control="naive"),
    PatchCase(name="git's own files",
        does="makes .gitattributes (filters), .gitmodules (fetches) and spellings of them",
        stopped_by="path rules",
        edits=_creates(
            ".gitattributes", "pkg/.gitattributes", ".gitmodules", ".GITMODULES", "gitmod~1"
        ),
        replies=(_new(".gitmodules", '[submodule "x"]'), _new(".gitattributes", "* filter=evil")),
        control="git"),
    PatchCase(name="start-up files of Python",
        does="makes .pth, sitecustomize, usercustomize, byte code, *.egg-info and *.dist-info",
        stopped_by="path rules; byte code of a repository is never in a workspace",
        edits=_creates(
            *("x.pth", "sitecustomize.py", "pkg/usercustomize/__init__.py", "SiteCustomize.py"),
            *(
                "__pycache__/app.cpython-311.pyc",
                "app.pyc",
                "x.egg-info/PKG-INFO",
                "x.dist-info/RECORD",
            ),
        ),
        control="naive"),
    PatchCase(name="names that are not what they look like",
        does="makes names with bidi controls, escapes, line breaks, look-alikes of existing names",
        stopped_by="path rules",
        edits=_creates(
            "a\u202eyp.exe", "a\u2066b.py", "a\x1b[2Jb.py", "a\nb.py", "pkg/\u200bmod.py"
        ),
        control="naive"),
    PatchCase(name="names that collide",
        does="makes files that differ from existing ones, or from each other, in case only",
        stopped_by="index of folded names",
        edits=(
            *_creates("App.py", "PKG/mod.py", "APP.PY"),
            (CreateFile("one.py", _EVIL), CreateFile("ONE.py", _EVIL)),
        ),
        control="naive"),
    PatchCase(name="CI, hooks and lock files",
        does="changes what other machines, editors and commits run",
        stopped_by="protected paths, which need `--allow`",
        edits=_creates(
            *(
                ".github/workflows/ci.yml",
                ".GitHub/Workflows/ci.yml",
                ".gitlab-ci.yml",
                "Jenkinsfile",
            ),
            *(".circleci/config.yml", "azure-pipelines.yml", ".travis.yml", ".husky/pre-commit"),
            *(".pre-commit-config.yaml", ".vscode/tasks.json", ".devcontainer/devcontainer.json"),
            *("conftest.py", "poetry.lock", "package-lock.json", "GITHUB~1/workflows/ci.yml"),
        )),
    PatchCase(name="files of secrets",
        does="makes or changes .env, private keys, .npmrc and their kin",
        stopped_by="protected paths, which need `--allow`",
        edits=_creates(".env", "deploy/.env.production", ".npmrc", "certs/server.pem", "id_rsa")),
)  # fmt: skip

_LINKS = (
    PatchCase(name="through a tracked link",
        does="changes, replaces and deletes a link, or a file below one, that leads out",
        stopped_by="links are no editable files; O_NOFOLLOW at every step of a write",
        edits=(
            (SearchReplace("link.py", f"value = '{SECRET}'\n", _EVIL),),
            *_creates("link.py", "linked/new.py", "linked/secret.py"),
            (RenameFile("link.py", "stolen.py"),),
            (RenameFile("linked/secret.py", "stolen.py"),),
            (RenameFile("app.py", "linked/new.py"),),
        ),
        control="naive"),
    PatchCase(name="new link", does="makes a link out, and in the same patch a file below it",
        stopped_by="modes of links and submodules are refused",
        replies=(
            _new("out", "../outside", "120000"),
            _new("out", "../outside", "120000") + _new("out/new.py", "x"),
            "```diff\n" + _new("app2.py", "/etc/passwd", "120000") + "```\n",
        ),
        control="git"),
    PatchCase(name="copy and rename from outside",
        does="takes a file above the repository as the source of a copy or a rename",
        stopped_by="path rules hold for every path of a header",
        replies=tuple(
            f"diff --git a/{source} b/stolen.py\nsimilarity index 100%\n{verb} from {source}\n"
            f"{verb} to stolen.py\n"
            for verb in ("copy", "rename")
            for source in (
                "../outside/secret.py",
                "linked/secret.py",
                "pkg/../../outside/secret.py",
            )
        ),
        control="git"),
    PatchCase(name="gitlink", does="makes a submodule",
        stopped_by="modes of links and submodules are refused",
        replies=(_new("vendored", "Subproject commit " + "1" * 40, "160000"),)),
)  # fmt: skip

_CONTENT = (
    PatchCase(name="odd modes", does="makes files setuid, setgid or writable for everybody",
        stopped_by="only the executable bit is known; files are written 644 or 755",
        replies=(
            _git("app.py", "old mode 100644\nnew mode 104755"),
            _new("tool", "x", "104755"),
            _new("tool", "x", "100777"),
            _git(
                "app.py",
                "old mode 100644\nnew mode 106777",
                "--- a/app.py\n+++ b/app.py\n@@ -1,2 +1,2 @@\n-x = 1\n+x = 3\n y = 2\n",
            ),
        ),
        harmless=True),
    PatchCase(name="binary patch",
        does="brings binary content, 300 MB packed into a few kilobytes among it",
        stopped_by="binary patches are not read", replies=(_bomb(20_000), _bomb(300_000_000))),
    PatchCase(name="huge text", does="brings megabytes of text",
        stopped_by="size limit of one edit", edits=((CreateFile("big.py", "x = 1\n" * 400_000),),),
        control="naive"),
    PatchCase(name="NUL and surrogates", does="puts NUL bytes and half characters into source",
        stopped_by="content rules",
        edits=(
            (CreateFile("a.py", "x = 1\0\n"),),
            (SearchReplace("app.py", "x = 1\n", "x = '\0'\n"),),
        ),
        replies=('{"edits": [{"path": "a.py", "create": "x = \\"\\ud800\\"\\n\\u0000"}]}',),
        control="naive"),
    PatchCase(name="bidi controls in code", does="hides what code does (CVE-2021-42574)",
        stopped_by="content rules",
        edits=(
            (CreateFile("a.py", "access = 'user\u202e \u2066# admin\u2069 \u2066'\n"),),
            (SearchReplace("app.py", "x = 1\n", "x = 1 \u202e# 2\n"),),
        ),
        control="naive"),
    PatchCase(name="line ends", does="sends CRLF for LF and LF for CRLF",
        stopped_by="a file keeps its own line ends",
        edits=(
            (SearchReplace("app.py", "x = 1\r\n", "x = 3\r\n"),),
            (SearchReplace("crlf.py", "x = 1\n", "x = 3\n"),),
        ),
        replies=(as_diff([SearchReplace("crlf.py", "x = 1\n", "x = 3\n")]).replace("\n", "\r\n"),),
        harmless=True),
    PatchCase(name="the same file twice",
        does="creates a file twice; edits one that it deletes; says one key of an edit twice",
        stopped_by="edits see each other; all or none",
        edits=(
            (CreateFile("new.py", _EVIL), CreateFile("new.py", "other = 1\n")),
            (DeleteFile("app.py"), SearchReplace("app.py", "x = 1\n", "x = 3\n")),
        ),
        replies=(
            '{"edits": [{"path": "ok.py", "path": "../outside/new.py", "create": "x = 1\\n"}]}',
            '{"edits": [{"path": "../outside/new.py", "path": "ok.py", "create": "x = 1\\n"}]}',
        ),
        harmless=True),
    PatchCase(name="replies that are no patch",
        does="sends deep nesting, wrong types, 2 MB of brackets, YAML tags, a pickle",
        stopped_by="readers with limits; nothing is evaluated",
        replies=(
            "[" * 100_000,
            '{"edits": ' * 20_000,
            '{"edits": [{"path": ["a.py"], "create": {"x": 1}}]}',
            '{"edits": [{"path": "a.py", "create": "!!python/object/apply:os.system [id]"}]',
            "cos\nsystem\n(S'touch owned'\ntR.",
            "__import__('os').system('touch owned')",
        ),
        harmless=True),
)  # fmt: skip

PATCH_CASES = (*_PATHS, *_LINKS, *_CONTENT)
