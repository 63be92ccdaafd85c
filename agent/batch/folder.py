"""What lies in the folder of one instance, and how it gets there.

result.json    the SolveResult, as `agent solve --json` prints it, without the receipt
receipt.json   what was retrieved, packed and dropped, and why
verdict.json   status, verdict and the evidence of the patch that was kept
patch.diff     the best patch so far, written as soon as there is one
exchanges.jsonl   every paid reply with its prompt (`agent solve --replay` reads it)
prompts/, replies/   the same for people: 001.md, 001.txt and so on
log.txt        what the workers said, all attempts
lock           held by the worker, whose process id it tells
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from agent.durable import replace_file
from agent.llm.exchange import ChatExchange
from agent.result import SolveResult

RESULT, RECEIPT, VERDICT = "result.json", "receipt.json", "verdict.json"
PATCH, TAPE, LOG, LOCK = "patch.diff", "exchanges.jsonl", "log.txt", "lock"


def write_patch(folder: Path, diff: bytes) -> None:
    """Keep the best patch so far. Raises OSError."""
    replace_file(folder / PATCH, [diff])


def write_result(
    folder: Path, result: SolveResult, diff: bytes, exchanges: Sequence[ChatExchange]
) -> None:
    """All files of a run that has ended; `result.json` comes last. Raises OSError."""
    write_patch(folder, diff)
    _write_json(folder / RECEIPT, result.receipt)
    _write_json(folder / VERDICT, _verdict(result))
    _write_exchanges(folder, exchanges)
    short = result.model_copy(update={"receipt": None})
    replace_file(folder / RESULT, [(short.model_dump_json(indent=2) + "\n").encode()])


def read_result(folder: Path) -> SolveResult | None:
    """The result that lies in the folder; None where there is none, or none that can be read."""
    try:
        return SolveResult.model_validate_json((folder / RESULT).read_bytes())
    except (OSError, ValidationError):
        return None


def read_patch(folder: Path) -> str:
    """The best patch as text, "" for none."""
    try:
        return (folder / PATCH).read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def last_words(folder: Path, limit: int = 160) -> str:
    """The last line of the log, cut to `limit` characters: why a worker died, if it said so."""
    try:
        with (folder / LOG).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 4096))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip()[:limit] if lines else ""


def _verdict(result: SolveResult) -> dict[str, object]:
    judged = [a for a in result.attempts if a.validation and a.validation.verdict == result.verdict]
    return {
        "status": result.status.value,
        "verdict": result.verdict,
        "message": result.message,
        "validation": judged[-1].validation.model_dump(mode="json")
        if judged and judged[-1].validation
        else None,
    }


def _write_json(path: Path, value: object) -> None:
    replace_file(path, [json.dumps(value, indent=2).encode(), b"\n"])


def _write_exchanges(folder: Path, exchanges: Sequence[ChatExchange]) -> None:
    for name in ("prompts", "replies"):
        (folder / name).mkdir(exist_ok=True)
    for number, exchange in enumerate(exchanges, start=1):
        messages = exchange.request.messages
        prompt = "\n\n".join(f"# {m.role}\n\n{m.content}" for m in messages)
        for place, text in (
            (folder / "prompts" / f"{number:03}.md", prompt),
            (folder / "replies" / f"{number:03}.txt", exchange.reply.text),
        ):
            replace_file(place, [text.encode("utf-8", "replace")])
