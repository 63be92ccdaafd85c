"""A recent small fix of each clone, judged by `agent verify` with its default limits.

`python -m benchmarks.verdicts.current --clones DIR --work DIR [--only NAME ...]`

The base is the parent of the newest small fix that brings a test; the patch is the commit's change
to the source, and its new tests are the reproduction test. Each project gets a virtual environment
of its own in the work folder, with the project installed from the base. Its set-up code runs on
this machine, outside of any sandbox: name only clones that you trust.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.errors import PatchshotError
from agent.repository.git import GitRepository, open_repository
from benchmarks.instances.history import read_log
from benchmarks.instances.parts import Parts, sort_parts
from benchmarks.verdicts.fixes import Fix, read_fix

_COMMITS = 600
_PIP_SECONDS = 900
_VERIFY_SECONDS = 1500
_FIX = re.compile(r"(?i)\b(?:fix|bug|wrong|crash|error|raise)")
_AGENT = "import sys; from agent.cli import main; sys.exit(main())"
# Names under which projects keep what their tests need.
_TEST_WORDS = re.compile(r"(?i)^(?:tests?|testing|unit-?tests?|dev|tests?[-_]dev|pytest)$")
_TEST_FILES = re.compile(r"(?i)(?:^|/)(?:requirements|reqs)[\w/.-]*(?:test|dev)[\w.-]*\.txt$")


def main(argv: Sequence[str] | None = None) -> int:
    """Judge one fix of each clone and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clones", type=Path, required=True, help="folder of owner+name clones")
    parser.add_argument("--work", type=Path, required=True, help="folder for bases and results")
    parser.add_argument("--python", default=sys.executable, help="Python of the environments")
    parser.add_argument("--only", nargs="*", default=[], help="owner/name")
    parser.add_argument("--again", action="store_true", help="judge again what has a result")
    given = parser.parse_args(argv)
    names = sorted(path.name.replace("+", "/", 1) for path in given.clones.iterdir())
    for name in given.only or [name for name in names if "/" in name]:
        print(_row(name, _project(name, given)), flush=True)
    return 0


def _project(repo: str, given: argparse.Namespace) -> Mapping[str, Any]:
    """Return the result of a project, from its folder if it is there."""
    folder: Path = given.work / repo.replace("/", "+")
    kept = folder / "result.json"
    if kept.is_file() and not given.again:
        return dict(json.loads(kept.read_text("utf-8")))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        found = _judged(repo, folder, given)
    except (PatchshotError, subprocess.SubprocessError, OSError) as error:
        found = {"verdict": "not tried", "reason": " ".join(str(error).split())[-300:]}
    kept.write_text(json.dumps(found, indent=1), "utf-8")
    return found


def _judged(repo: str, folder: Path, given: argparse.Namespace) -> Mapping[str, Any]:
    fix = _newest_fix(given.clones, repo)
    base = folder / "base"
    _check_out(given.clones / repo.replace("/", "+"), fix, base)
    if not (folder / "venv" / ".done").is_file():
        _install(base, folder / "venv", given.python)
    patch, issue = folder / "fix.diff", folder / "issue.md"
    patch.write_bytes(_diff(base, fix))
    issue.write_text(fix.entry.message, "utf-8")
    started = time.monotonic()
    done = subprocess.run(
        [
            *(sys.executable, "-c", _AGENT, "verify", "--diff", patch, "--repo", base),
            *("--problem", issue, "--test", fix.test.path, "--json"),
        ],
        env={**os.environ, "VIRTUAL_ENV": str(folder / "venv")},
        stdout=subprocess.PIPE,
        stderr=(folder / "verify.log").open("wb"),
        timeout=_VERIFY_SECONDS,
        check=False,
    )
    (folder / "verify.json").write_bytes(done.stdout)
    seconds = round(time.monotonic() - started, 1)
    about = {"commit": fix.entry.commit, "exit": done.returncode, "seconds": seconds}
    if not done.stdout.strip():
        said = (folder / "verify.log").read_text("utf-8", "replace").strip().splitlines()
        return {**about, "verdict": "error", "reason": said[-1][:300] if said else ""}
    report = json.loads(done.stdout)
    report = report.get("validation") or report["attempts"][-1]["validation"]
    keys = ("verdict", "reason", "runner")
    return {**about, **{key: report[key] for key in keys}, "files": len(report["selected"])}


def _newest_fix(clones: Path, repo: str) -> Fix:
    with open_repository(clones / repo.replace("/", "+")) as git:
        found = _fixes(git)
    error: PatchshotError | None = None
    for commit in found:
        try:
            return read_fix(clones, repo, commit)
        except PatchshotError as refused:
            error = refused
    raise error or PatchshotError(f"no small fix with a test in {_COMMITS} commits")


def _fixes(git: GitRepository) -> list[str]:
    """Return the small commits with a test whose message speaks of a fix, newest first."""
    entries = read_log(git, git.ancestors(git.resolve("HEAD"), _COMMITS))
    fixes = ((e.commit, sort_parts(e.touched)) for e in entries if _FIX.search(e.message))
    return [commit for commit, parts in fixes if parts and _is_alone(parts)]


def _is_alone(parts: Parts) -> bool:
    """Whether the test needs no other new file: it is the only one that is not source."""
    return len(parts.tests) == 1 == len(parts.cases)


def _check_out(clone: Path, fix: Fix, base: Path) -> None:
    if not base.is_dir():
        _git("clone", "--quiet", "--no-checkout", str(clone.resolve()), str(base))
    _git("checkout", "--quiet", "--force", fix.entry.parent, cwd=base)
    _git("clean", "-fdq", cwd=base)


def _diff(base: Path, fix: Fix) -> bytes:
    for change in fix.patch.changes:
        path = base / change.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True) if change.after is None else path.write_bytes(change.after)
    test = base / fix.test.path
    test.write_text(fix.test.content, "utf-8")
    _git("add", "--all", cwd=base)
    diff = _git("diff", "--cached", "--binary", "--no-color", cwd=base)
    _git("reset", "--quiet", "--hard", cwd=base)
    return diff


def _git(*arguments: str, cwd: Path | None = None) -> bytes:
    return subprocess.run(
        ["git", *arguments], cwd=cwd, check=True, capture_output=True, timeout=600
    ).stdout


# ------------------------------------------------------------------------- the environment


def _install(base: Path, venv: Path, python: str) -> None:
    """Install the project as its contributors would: editable, with what its tests need."""
    shutil.rmtree(venv, ignore_errors=True)
    subprocess.run([python, "-m", "venv", venv], check=True, timeout=180)
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--prefer-binary"]
    for words in (["--upgrade", "pip"], ["pytest"], *_wanted(base)):
        subprocess.run(
            [*pip, *words], cwd=base, check=False, timeout=_PIP_SECONDS, capture_output=True
        )
    (venv / ".done").touch()


def _wanted(base: Path) -> Iterator[list[str]]:
    """Yield what to install, one call of pip each; what pip refuses is left out."""
    path = base / "pyproject.toml"
    table = tomllib.loads(path.read_text("utf-8")) if path.is_file() else {}
    extras = table.get("project", {}).get("optional-dependencies", {})
    named = sorted(e for e in extras if _TEST_WORDS.match(e) or e in ("all", "cli"))
    yield ["--editable", "."]
    yield ["--editable", f".[{','.join(named or ('test', 'tests', 'dev'))}]"]
    for group in sorted(table.get("dependency-groups", {})):
        if _TEST_WORDS.match(group):
            yield ["--group", group]
    poetry = table.get("tool", {}).get("poetry", {}).get("group", {})
    for name in sorted(poetry):
        if _TEST_WORDS.match(name):
            yield [one for one in poetry[name].get("dependencies", {}) if one != "python"]
    if (base / "requirements.txt").is_file():
        yield ["--requirement", "requirements.txt"]
    listed = _git("ls-files", cwd=base).decode().splitlines()
    for file in (one for one in listed if _TEST_FILES.search(one)):
        yield ["--requirement", file]


def _row(repo: str, found: Mapping[str, Any]) -> str:
    first = str(found.get("reason", "")).partition("\n")[0]
    commit = str(found.get("commit", ""))[:10]
    runner = str(found.get("runner", "")).partition(":")[0]
    seconds = found.get("seconds", "")
    return f"| {repo} | {commit} | {runner} | {seconds} | {found['verdict']} | {first[:160]} |"


if __name__ == "__main__":
    sys.exit(main())
