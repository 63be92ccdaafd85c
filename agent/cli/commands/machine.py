"""Commands about the program itself: `agent config`, `agent doctor`, `agent bundle`."""

from __future__ import annotations

import asyncio
import json as json_module
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from agent.cli import options
from agent.cli.commands import common
from agent.errors import ConfigurationError, PatchshotError, Status
from agent.settings import (
    TEAM,
    Settings,
    consents_file,
    load_with_origins,
    option_of,
    team_settings,
    trust,
    user_file,
    work_tree_of,
)
from agent.shared.terminal import say

if TYPE_CHECKING:
    from sandbox import Probe

_HEADER = """\
# Settings of Patchshot. Remove the "# " before a line to set it. The environment (PATCHSHOT_NAME)
# and the command line win over this file. `agent config` shows what holds.
"""


@options.command(
    "config",
    ending="""
    Example:
      agent config
      agent config --init
    """,
)
@options.path("--repo", "Take the limits of this repository's own file into account.")
@options.flag("--init", "Write a commented file to the configuration folder.")
@options.as_json
def config_command(repo: Path | None, init: bool, json: bool) -> int:
    """Show every setting, its value, and where the value comes from."""
    if init:
        return _initialise()
    loaded = load_with_origins({}, repository=repo)
    for note in loaded.notes:
        say(f"note: {note}")
    rows, lines, panel = [], [], ""
    width = max(map(len, Settings.model_fields))
    for name, field in Settings.model_fields.items():
        value, origin = _plain(getattr(loaded.settings, name)), loaded.origins[name]
        rows.append({"name": name, "value": value, "origin": origin, "help": field.description})
        if option_of(name).panel != panel:
            panel = option_of(name).panel
            lines.append(f"--- {panel}\n")
        shown = "-" if value in (None, []) else json_module.dumps(value)
        where = "" if origin == "default" else f"  ({origin})"
        lines.append(f"{name:<{width}}  {shown}{where}\n")
    common.print_result(rows, "".join(lines), json=json)
    return 0


def _plain(value: Any) -> Any:
    """Convert a value to JSON without keys and passwords."""
    if isinstance(value, SecretStr):
        return "********"
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, str):
        return re.sub(r"(//[^/@:]*:)[^/@]+@", r"\1********@", value)  # a password in a URL
    return list(value) if isinstance(value, tuple) else value


def _initialise() -> int:
    """Write a commented configuration file. Raises ConfigurationError if one exists."""
    path = user_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with path.open("x", encoding="utf-8") as file:
            path.chmod(0o600)  # the user may add a key later
            file.write(_HEADER + "".join(_commented()))
    except FileExistsError:
        raise ConfigurationError(f"{path} exists; edit it, or remove it first") from None
    say(f"wrote {path}")
    return 0


def _commented() -> Iterator[str]:
    """Yield each setting as a commented line below its help text, by panel."""
    panel = ""
    for name, field in Settings.model_fields.items():
        if option_of(name).panel != panel:
            panel = option_of(name).panel
            yield f"\n# --- {panel}\n"
        default = None if field.default_factory else _plain(field.default)
        value = '""' if default is None else json_module.dumps(default)
        yield f"\n# {field.description}\n# {name} = {value}\n"


@options.command(
    "trust",
    ending="""
    Example:
      agent trust --repo ./target
    """,
)
@options.repo
@options.as_json
def trust_command(repo: Path, json: bool) -> int:
    """Let test_cmd, setup_cmd and python of a repository's own file count, as they are now.

    They run in the sandbox only. A change of one of them needs a new consent.
    """
    root = work_tree_of(repo)
    team = {name: _plain(value) for name, value in team_settings(root).items()}
    if not team:
        raise ConfigurationError(f"the file of {root} sets none of {', '.join(TEAM)}")
    trust(root)
    lines = [f"{name} = {json_module.dumps(value)}\n" for name, value in team.items()]
    words = f"these count for {root} from now on (kept in {consents_file()}):\n{''.join(lines)}"
    common.print_result({"repository": str(root), "settings": team}, words, json=json)
    return 0


# The name of the lines of sandboxes that are not the chosen one; those that do not work are shown
# with `-v` only.
_OTHER = "  or"

# Only "missing" makes the command fail; "note" works without it.
_MARKS = {"ok": "✓", "note": "·", "missing": "✗"}


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One line of the checklist."""

    name: str
    state: str
    detail: str


@options.command(
    "doctor",
    settings=options.SANDBOX_SETTINGS,
    ending="""
    Example:
      agent doctor --json
    """,
)
@options.as_json
@options.flag("--live", "Also make one real call to the model.")
@options.flag("--verbose -v", "Show all details.")
def doctor_command(json: bool, live: bool, verbose: bool, flags: Mapping[str, Any]) -> int:
    """Say what works here: git, tokenizer, sandbox guarantees, model, embeddings."""
    settings = common.load_settings(flags)
    checks = list(_checks(settings, live=live))
    origins = load_with_origins(flags).origins.items()
    given = [f"{name} from {origin}" for name, origin in origins if origin != "default"]
    words = ", ".join(given) or "all defaults (`agent config` lists them)"
    checks.append(DoctorCheck("settings", "ok", words))
    shown = [one for one in checks if verbose or one.name != _OTHER or one.state == "ok"]
    lines = (f"{_MARKS[one.state]} {one.name:<11} {one.detail}\n" for one in shown)
    common.print_result([asdict(one) for one in checks], "".join(lines), json=json)
    missing = {check.name for check in checks if check.state == "missing"}
    if "sandbox" in missing:
        return Status.SANDBOX.exit_code
    return Status.USAGE.exit_code if missing else 0


def _checks(settings: Settings, *, live: bool) -> Iterator[DoctorCheck]:
    from agent import wiring

    yield DoctorCheck("python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield _try("git", _git)
    yield _try("tokenizer", lambda: _tokenizer(settings))
    yield from _sandboxes(settings)
    yield _try("cache", lambda: _cache(settings.cache_dir))
    preset = f"preset {settings.preset}"
    yield _try("retrieval", lambda: "; ".join(wiring.missing_models(settings)) or preset)
    yield _try("model", lambda: wiring.in_words(wiring.endpoint(settings)), missing="note")
    yield _try("embeddings", lambda: wiring.embedding_in_words(settings), missing="note")
    if live:
        yield _try("live chat", lambda: asyncio.run(wiring.live_call(settings)))
        yield _try("live embed", lambda: asyncio.run(wiring.live_embedding(settings)))


def _try(name: str, check: Callable[[], str], *, missing: str = "missing") -> DoctorCheck:
    try:
        return DoctorCheck(name, "ok", check())
    except PatchshotError as error:
        return DoctorCheck(name, missing, str(error))
    except OSError as error:
        return DoctorCheck(name, "missing", f"{error.strerror or error} ({error.filename})")


def _git() -> str:
    git = shutil.which("git")
    if git is None:
        raise ConfigurationError("not installed: apt install git, or your system's way")
    command = [git, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return f"{done.stdout.strip()} ({git})"


def _tokenizer(settings: Settings) -> str:
    from agent.shared.tokens import encoding_for

    return f"{encoding_for(settings.model or '')}, offline"


def _sandboxes(settings: Settings) -> Iterator[DoctorCheck]:
    """Yield the chosen backend with its guarantees, then the other backends."""
    from agent.wiring import probe_sandboxes, why_no_python

    chosen, *others = probe_sandboxes(settings)
    state = "missing" if not chosen.available else "ok" if chosen.isolated else "note"
    yield DoctorCheck("sandbox", state, _guarantees(chosen))
    if chosen.available and (why := why_no_python(settings)):
        yield DoctorCheck("test python", "note", why)
    for probe in others:
        how = f"--sandbox {probe.backend}" if probe.available else "not available"
        state = "ok" if probe.available else "note"
        yield DoctorCheck(_OTHER, state, f"{_guarantees(probe)} ({how})")


def _guarantees(probe: Probe) -> str:
    """Return the guarantees of a backend and those that it lacks."""
    if not probe.available:
        return f"{probe.backend}: {probe.problem}"
    holds = [name for name, held in sorted(probe.guarantees.items()) if held]
    lacks = [name for name, held in sorted(probe.guarantees.items()) if not held]
    rest = f"; not: {', '.join(lacks)}" if lacks else ""
    return f"{probe.backend}: {', '.join(holds) or 'no guarantees'}{rest}"


def _cache(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    return f"{folder}, {shutil.disk_usage(folder).free / 1e9:.1f} GB free"


@options.command(
    "bundle",
    ending="""
    Example:
      agent bundle --output agent.py
      agent bundle --check agent.py
    """,
)
@options.path("--output -o", "Write the file here, then check it.")
@options.path("--check", "Check this file against the contract instead.")
@options.as_json
def bundle_command(output: Path | None, check: Path | None, json: bool) -> int:
    """Write the program as one source file, for the miner contract (docs/guide/miner.md)."""
    from agent.miner.bundle import check_bundle, make_bundle

    path = output or check
    if path is None or None not in (output, check):
        raise ConfigurationError("give one of --output FILE (write it) and --check FILE")
    facts: dict[str, Any] = {"path": str(path)}
    if output is not None:
        if not output.parent.is_dir():
            raise ConfigurationError(f"--output {output}: there is no folder {output.parent}")
        bundle = make_bundle()
        data = bundle.text.encode("utf-8")
        output.write_bytes(data)
        facts |= {"bytes": len(data), "sha256": bundle.sha256, "files": len(bundle.files)}
        facts["requirements"] = list(bundle.requirements)
    checks = check_bundle(path)
    if json:
        common.print_value({**facts, "checks": [asdict(one) for one in checks]})
    elif output is not None:
        say(f"{path}: {facts['bytes']:,} bytes, sha256 {facts['sha256']}")
    for one in checks if not json else ():
        say(f"{'ok  ' if one.ok else 'FAIL'}  {one.check}: {one.detail}")
    return 0 if all(one.ok for one in checks) else Status.USAGE.exit_code
