"""`agent doctor`: check what works on this machine by trying it."""

from __future__ import annotations

import asyncio
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from agent.cli.commands.common import guarded, load_settings, print_value, write_stdout
from agent.cli.options import SANDBOX_SETTINGS, json_option
from agent.cli.options import command as declare
from agent.errors import PatchshotError, Status

if TYPE_CHECKING:
    from agent.settings import Settings
    from sandbox import Probe

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


def run(*, json: bool, live: bool, verbose: bool, flags: Mapping[str, Any]) -> int:
    """Print the checklist. Return 2 or 10 if something that `solve` needs is missing."""
    return guarded(lambda: _run(json=json, live=live, verbose=verbose, flags=flags), flags=flags)


def _run(*, json: bool, live: bool, verbose: bool, flags: Mapping[str, Any]) -> int:
    from agent.settings import load_with_origins

    settings = load_settings(flags)
    findings = list(_findings(settings, live=live))
    findings.append(_origins(load_with_origins(flags).origins))
    if json:
        print_value([{k: v for k, v in asdict(f).items() if k != "brief"} for f in findings])
    else:
        lines = [line for finding in findings for line in _lines(finding, verbose=verbose)]
        write_stdout("".join(f"{line}\n" for line in lines))
    missing = {finding.name for finding in findings if finding.state == "missing"}
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


def _findings(settings: Settings, *, live: bool) -> Iterator[DoctorCheck]:
    yield DoctorCheck("python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield _git()
    yield _try("tokenizer", lambda: _tokenizer(settings))
    yield from _sandboxes(settings)
    yield _try("cache", lambda: _cache(settings))
    yield _retrieval(settings)
    yield _try("model", lambda: _model(settings), missing="note")
    yield _try("embeddings", lambda: _embeddings(settings), missing="note")
    if live:
        yield _try("live chat", lambda: asyncio.run(_live_chat(settings)))
        yield _try("live embed", lambda: asyncio.run(_live_embedding(settings)))


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


def _model(settings: Settings) -> str:
    from agent.wiring import model_in_words

    return model_in_words(settings)


def _embeddings(settings: Settings) -> str:
    from agent.wiring import embedding_in_words

    return embedding_in_words(settings)


async def _live_chat(settings: Settings) -> str:
    from agent.wiring import live_call

    return await live_call(settings)


async def _live_embedding(settings: Settings) -> str:
    from agent.wiring import live_embedding

    return await live_embedding(settings)


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
def command(json: bool, live: bool, verbose: bool, flags: Mapping[str, Any]) -> int:
    """Say what works here: git, tokenizer, sandbox guarantees, model, embeddings."""
    return run(json=json, live=live, verbose=verbose, flags=flags)
