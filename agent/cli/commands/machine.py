"""Commands about the program itself: `agent config`, `agent doctor`, `agent bundle`."""

from __future__ import annotations

import asyncio
import json as json_module
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import SecretStr

from agent.cli.commands.common import load_settings, print_value, write_stdout
from agent.cli.options import SANDBOX_SETTINGS, json_option, path_option
from agent.cli.options import command as declare
from agent.errors import ConfigurationError, PatchshotError, Status
from agent.settings import Loaded, Settings, load_with_origins, option_of, user_file
from agent.shared.terminal import say

if TYPE_CHECKING:
    from sandbox import Probe

_HEADER = """\
# Settings of Patchshot. Remove the "# " before a line to set it. The environment (PATCHSHOT_NAME)
# and the command line win over this file. `agent config` shows what holds.
"""


@declare(
    "config",
    ending="""
    Example:
      agent config
      agent config --init
    """,
)
@path_option("--repo", help="Take the limits of this repository's own file into account.")
@click.option("--init", is_flag=True, help="Write a commented file to the configuration folder.")
@json_option
def config_command(repo: Path | None, init: bool, json: bool) -> int:
    """Show every setting, its value, and where the value comes from."""
    if init:
        return _initialise()
    loaded = load_with_origins({}, repository=repo)
    for note in loaded.notes:
        say(f"note: {note}")
    rows = [_row(name, loaded) for name in Settings.model_fields]
    if json:
        print_value(rows)
        return 0
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        origin = "" if row["origin"] == "default" else f"  ({row['origin']})"
        write_stdout(f"{row['name']:<{width}}  {_in_words(row['value'])}{origin}\n")
    return 0


def _row(name: str, loaded: Loaded) -> dict[str, Any]:
    return {
        "name": name,
        "value": _plain(getattr(loaded.settings, name)),
        "origin": loaded.origins[name],
        "help": Settings.model_fields[name].description,
    }


def _plain(value: Any) -> Any:
    """Convert a value to JSON without keys and passwords."""
    if isinstance(value, SecretStr):
        return "********"
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, str):
        return re.sub(r"(//[^/@:]*:)[^/@]+@", r"\1********@", value)  # a password in a URL
    return list(value) if isinstance(value, tuple) else value


def _in_words(value: Any) -> str:
    if value is None or value == []:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, list) else str(value)


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


# The name of the lines of sandboxes that are not the chosen one. Those that do not work are shown
# with `-v` only.
_OTHER = "  or"

# Only "missing" makes the command fail.
_MARKS = {"ok": "✓", "note": "·", "missing": "✗"}


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One line of the checklist. `state`: "ok", "note" (works without it) or "missing".

    `brief` is what is shown without `-v`, "" for the whole detail.
    """

    name: str
    state: str
    detail: str
    brief: str = ""


@declare(
    "doctor",
    settings=SANDBOX_SETTINGS,
    ending="""
    Example:
      agent doctor --json
    """,
)
@json_option
@click.option("--live", is_flag=True, help="Also make one real call to the model.")
@click.option("--verbose", "-v", is_flag=True, help="Show all details.")
def doctor_command(json: bool, live: bool, verbose: bool, flags: Mapping[str, Any]) -> int:
    """Say what works here: git, tokenizer, sandbox guarantees, model, embeddings."""
    settings = load_settings(flags)
    checks = list(_checks(settings, live=live))
    checks.append(_origins(load_with_origins(flags).origins))
    if json:
        print_value([{k: v for k, v in asdict(one).items() if k != "brief"} for one in checks])
    else:
        lines = [line for check in checks for line in _lines(check, verbose=verbose)]
        write_stdout("".join(f"{line}\n" for line in lines))
    missing = {check.name for check in checks if check.state == "missing"}
    if "sandbox" in missing:
        return Status.SANDBOX.exit_code
    return Status.USAGE.exit_code if missing else 0


def _lines(check: DoctorCheck, *, verbose: bool) -> Iterator[str]:
    """Yield one line, or with `verbose` the whole detail."""
    if not verbose and check.name == _OTHER and not check.brief:
        return
    detail = check.detail if verbose else check.brief or check.detail
    first, *others = detail.split("\n")
    yield f"{_MARKS[check.state]} {check.name:<11} {first}"
    yield from (f"{'':<13} {line}" for line in others)


def _origins(origins: Mapping[str, str]) -> DoctorCheck:
    """Say which settings are not the defaults, and where each comes from."""
    given = [f"{name} from {origin}" for name, origin in origins.items() if origin != "default"]
    brief = ", ".join(given) or "all defaults (`agent config` lists them)"
    return DoctorCheck("settings", "ok", "\n".join(given) or brief, brief)


def _checks(settings: Settings, *, live: bool) -> Iterator[DoctorCheck]:
    from agent import wiring

    yield DoctorCheck("python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield _git()
    yield _try("tokenizer", lambda: _tokenizer(settings))
    yield from _sandboxes(settings)
    yield _try("cache", lambda: _cache(settings))
    yield _retrieval(settings)
    yield _try("model", lambda: wiring.model_in_words(settings), missing="note")
    yield _try("embeddings", lambda: wiring.embedding_in_words(settings), missing="note")
    if live:
        yield _try("live chat", lambda: asyncio.run(wiring.live_call(settings)))
        yield _try("live embed", lambda: asyncio.run(wiring.live_embedding(settings)))


def _try(name: str, check: Callable[[], str], *, missing: str = "missing") -> DoctorCheck:
    try:
        return DoctorCheck(name, "ok", check())
    except PatchshotError as error:
        return DoctorCheck(name, missing, str(error), str(error).partition(", or one of ")[0])
    except OSError as error:
        return DoctorCheck(name, "missing", f"{error.strerror or error} ({error.filename})")


def _git() -> DoctorCheck:
    found = shutil.which("git")
    if found is None:
        return DoctorCheck(
            "git", "missing", "not installed: apt install git (or your system's way)"
        )
    done = subprocess.run(
        [found, "--version"], capture_output=True, text=True, timeout=20, check=False
    )
    return DoctorCheck("git", "ok", f"{done.stdout.strip()} ({found})")


def _tokenizer(settings: Settings) -> str:
    from agent.wiring import make_counter

    started = time.perf_counter()
    counter = make_counter(settings.model)
    counter.count("def main(): ...")
    return f"{counter.name}, offline, loaded in {time.perf_counter() - started:.2f} s"


def _sandboxes(settings: Settings) -> Iterator[DoctorCheck]:
    """Yield the chosen backend with its guarantees, then the other backends."""
    from agent.wiring import probe_sandboxes, why_no_python

    chosen, *others = probe_sandboxes(settings)
    state = "ok" if chosen.isolated else "note"
    state = state if chosen.available else "missing"
    yield DoctorCheck("sandbox", state, _guaranteed(chosen), _in_short(chosen))
    if chosen.available and (why := why_no_python(settings)):
        yield DoctorCheck("test python", "note", why)
    for probe in others:
        how = f"--sandbox {probe.backend}" if probe.available else "not available"
        brief = f"{_in_short(probe)} ({how})" if probe.available else ""
        yield DoctorCheck(_OTHER, "note", f"{_guaranteed(probe)} ({how})", brief)


def _in_short(probe: Probe) -> str:
    """Return how many guarantees a backend gives, and the names of those that it does not."""
    if not probe.available:
        return _guaranteed(probe)
    lacks = ", ".join(name for name, held in sorted(probe.guarantees.items()) if not held)
    total, held = len(probe.guarantees), sum(probe.guarantees.values())
    return f"{probe.backend}: {held} of {total} guarantees" + (f"; not: {lacks}" if lacks else "")


def _guaranteed(probe: Probe) -> str:
    if not probe.available:
        return f"{probe.backend}: {probe.problem}"
    holds = ", ".join(name for name, held in sorted(probe.guarantees.items()) if held)
    lacks = ", ".join(name for name, held in sorted(probe.guarantees.items()) if not held)
    return f"{probe.backend}: {holds or 'no guarantees'}" + (f"; not: {lacks}" if lacks else "")


def _cache(settings: Settings) -> str:
    folder = settings.cache_dir
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    return f"{folder}, {free / 1e9:.1f} GB free"


def _retrieval(settings: Settings) -> DoctorCheck:
    from agent.wiring import missing_models

    try:
        missing = missing_models(settings)
    except PatchshotError as error:
        return DoctorCheck("retrieval", "missing", str(error))
    detail = "; ".join(missing) or f"preset {settings.preset}"
    return DoctorCheck("retrieval", "note" if missing else "ok", detail)


@declare(
    "bundle",
    ending="""
    Example:
      agent bundle --output agent.py
      agent bundle --check agent.py
    """,
)
@path_option("--output", "-o", help="Write the file here, then check it.")
@path_option("--check", help="Check this file against the contract instead.")
@json_option
def bundle_command(output: Path | None, check: Path | None, json: bool) -> int:
    """Write the program as one source file, for the miner contract (docs/guide/miner.md)."""
    from agent.miner.bundle import check_bundle

    path = output or check
    if path is None or None not in (output, check):
        raise ConfigurationError("give one of --output FILE (write it) and --check FILE")
    facts = {} if output is None else _write_bundle(output)
    checks = check_bundle(path)
    if json:
        print_value({"path": str(path), **facts, "checks": [asdict(one) for one in checks]})
        return 0 if all(one.ok for one in checks) else Status.USAGE.exit_code
    if facts:
        say(f"{path}: {facts['bytes']:,} bytes, {facts['files']} files, sha256 {facts['sha256']}")
    for one in checks:
        say(f"{'ok  ' if one.ok else 'FAIL'}  {one.check}: {one.detail}")
    return 0 if all(one.ok for one in checks) else Status.USAGE.exit_code


def _write_bundle(path: Path) -> dict[str, object]:
    from agent.miner.bundle import make_bundle

    if not path.parent.is_dir():
        raise ConfigurationError(f"--output {path}: there is no folder {path.parent}")
    bundle = make_bundle()
    path.write_bytes(bundle.text.encode("utf-8"))
    return {
        "bytes": len(bundle.text.encode("utf-8")),
        "sha256": bundle.sha256,
        "files": len(bundle.files),
        "requirements": list(bundle.requirements),
    }
