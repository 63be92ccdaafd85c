"""`agent bundle`: write the program as one source file for the miner contract, or check one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.cli.commands.common import guarded, print_value
from agent.cli.options import command as declare
from agent.cli.options import json_option, path_option
from agent.errors import ConfigurationError, Status
from agent.shared.terminal import say

if TYPE_CHECKING:
    from agent.miner.bundle import BundleCheck


@dataclass(frozen=True, slots=True)
class BundleRequest:
    """Arguments of `agent bundle`: the file to write or the file to check."""

    output: Path | None
    check: Path | None
    json: bool


def run(request: BundleRequest) -> int:
    """Write or check the file, print the findings, return 0, or 2 for a failed check."""
    return guarded(lambda: _run(request))


def _run(request: BundleRequest) -> int:
    from agent.miner.bundle import check_bundle

    if (request.output is None) == (request.check is None):
        raise ConfigurationError("give one of --output FILE (write it) and --check FILE")
    path, facts = request.check, {}
    if request.output is not None:
        path, facts = request.output, _write(request.output)
    assert path is not None
    findings = check_bundle(path)
    if request.json:
        print_value({"path": str(path), **facts, "checks": [asdict(f) for f in findings]})
    else:
        _show(path, facts, findings)
    return 0 if all(finding.ok for finding in findings) else Status.USAGE.exit_code


def _write(path: Path) -> dict[str, object]:
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


def _show(path: Path, facts: dict[str, object], findings: tuple[BundleCheck, ...]) -> None:
    if facts:
        say(f"{path}: {facts['bytes']:,} bytes, {facts['files']} files, sha256 {facts['sha256']}")
    for finding in findings:
        say(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.check}: {finding.detail}")


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
def command(**given: Any) -> int:
    """Write the program as one source file, for the miner contract (docs/guide/miner.md)."""
    return run(BundleRequest(**given))
