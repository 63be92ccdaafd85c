"""`agent doctor`: what works on this machine, found by trying it."""

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

from agent.commands.common import guarded, print_value, write_stdout
from agent.errors import PatchshotError, Status

if TYPE_CHECKING:
    from agent.settings import Settings
    from sandbox.types import Probe

# What each state means for the exit code: only "missing" of something needed is a failure.
_MARKS = {"ok": "✓", "note": "·", "missing": "✗"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the checklist. `state`: "ok", "note" (works without it) or "missing"."""

    name: str
    state: str
    detail: str


def run(*, json: bool, live: bool, flags: Mapping[str, Any]) -> int:
    """Print the checklist; exit 2 or 10 when something that `solve` needs is missing."""
    return guarded(lambda: _run(json=json, live=live, flags=flags))


def _run(*, json: bool, live: bool, flags: Mapping[str, Any]) -> int:
    from agent.settings import load

    settings = load(flags)
    findings = list(_findings(settings, live=live))
    if json:
        print_value([asdict(finding) for finding in findings])
    else:
        lines = [f"{_MARKS[f.state]} {f.name:<11} {f.detail}\n" for f in findings]
        write_stdout("".join(lines).encode("utf-8", "replace"))
    missing = {finding.name for finding in findings if finding.state == "missing"}
    if "sandbox" in missing:
        return Status.SANDBOX.exit_code
    return Status.USAGE.exit_code if missing else 0


def _findings(settings: Settings, *, live: bool) -> Iterator[Finding]:
    yield Finding("python", "ok", f"{platform.python_version()} ({sys.executable})")
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


def _try(name: str, check: Callable[[], str], *, missing: str = "missing") -> Finding:
    try:
        return Finding(name, "ok", check())
    except PatchshotError as error:
        return Finding(name, missing, str(error))
    except OSError as error:
        return Finding(name, "missing", f"{error.strerror or error} ({error.filename})")


def _git() -> Finding:
    found = shutil.which("git")
    if found is None:
        return Finding("git", "missing", "not installed: apt install git (or your system's way)")
    done = subprocess.run(
        [found, "--version"], capture_output=True, text=True, timeout=20, check=False
    )
    return Finding("git", "ok", f"{done.stdout.strip()} ({found})")


def _tokenizer(settings: Settings) -> str:
    from agent.services.context import make_counter

    started = time.perf_counter()
    counter = make_counter(settings.model)
    counter.count("def main(): ...")
    return f"{counter.name}, offline, loaded in {time.perf_counter() - started:.2f} s"


def _sandboxes(settings: Settings) -> Iterator[Finding]:
    """The chosen backend with what it guarantees, then what the others would."""
    from agent.services.validation import probe_sandboxes, why_no_python

    chosen, *others = probe_sandboxes(settings)
    state = "ok" if chosen.isolated else "note"
    yield Finding("sandbox", state if chosen.available else "missing", _guaranteed(chosen))
    if chosen.available and (why := why_no_python(settings)):
        yield Finding("test python", "note", why)
    for probe in others:
        how = f"--sandbox {probe.backend}" if probe.available else "not available"
        yield Finding("  or", "note", f"{_guaranteed(probe)} ({how})")


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


def _retrieval(settings: Settings) -> Finding:
    from agent.services.retrieval import missing_models

    try:
        missing = missing_models(settings)
    except PatchshotError as error:
        return Finding("retrieval", "missing", str(error))
    left_out = f" without {', '.join(settings.without)}" if settings.without else ""
    detail = "; ".join(missing) or f"preset {settings.preset}{left_out}"
    return Finding("retrieval", "note" if missing else "ok", detail)


def _model(settings: Settings) -> str:
    from agent.services.model import model_in_words

    return model_in_words(settings)


def _embeddings(settings: Settings) -> str:
    from agent.services.embedding import embedding_in_words

    return embedding_in_words(settings)


async def _live_chat(settings: Settings) -> str:
    from agent.services.model import live_call

    return await live_call(settings)


async def _live_embedding(settings: Settings) -> str:
    from agent.services.embedding import live_embedding

    return await live_embedding(settings)
