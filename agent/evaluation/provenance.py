"""What rows were made with, kept beside them: nothing goes on from another retriever's rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.errors import ConfigurationError

if TYPE_CHECKING:
    from agent.settings import Settings

_SETTINGS = (
    "preset", "without", "embed", "embed_model", "embed_weights", "prefilter", "filename_bonus",
    "context_tokens", "context_reserve", "max_chunks", "model", "corpora",
)  # fmt: skip
"""What decides about a row; the model, because its tokenizer counts the context."""

_CODE = (
    "retrieval", "context", "repository", "problem.py", "tokens.py", "services", "corpora",
    "corpora/history",
    "evaluation/measure.py", "models/encoder/model.json", "models/ranker.npz", "models/static.npz",
)  # fmt: skip


def provenance(settings: Settings) -> Mapping[str, Any]:
    """The settings that decide about rows, and a digest of the code that does."""
    values = {name: getattr(settings, name) for name in _SETTINGS}
    values |= {name: sorted(values[name]) for name in ("without", "corpora")}
    return {**values, "code": code_digest()}


def code_digest() -> str:
    """SHA-256 of the source files that reading, ranking and packing consist of, 16 hex digits."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for name in _CODE:
        part = root / name
        for file in [part] if part.is_file() else sorted(part.glob("*.py")):
            digest.update(f"{name}/{file.name}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def check_provenance(output: Path, current: Mapping[str, Any], *, restart: bool) -> None:
    """Note what `output` is made with; refuse to go on where it was made with something else.

    Raises ConfigurationError. Rows without a note (of another program) are refused too.
    """
    note = output.with_name(f"{output.name}.run.json")
    has_rows = output.is_file() and output.stat().st_size > 0
    if has_rows and not restart:
        changed = _differences(_read(note), current)
        if changed:
            raise ConfigurationError(
                f"--output {output}: its rows were made with other settings ({changed}); "
                "--restart to measure again, or name another file"
            )
    try:
        note.write_text(json.dumps(current, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise ConfigurationError(f"--output {output}: {note}: {error.strerror}") from None


def _read(note: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(note.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if not before:
        return "nothing says which"
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    return ", ".join(f"{name} {before.get(name)!r}, now {now.get(name)!r}" for name in names)
