"""What validating a one-file patch costs beside the tests themselves, on some 2,500 Python files.

    python -m benchmarks.validation

"The tests themselves" are the runs that the verdict rests on (A, B, C, C', see
`agent.verify.plan`), done plainly one after another: the same pytest on the same files,
without sandbox or copies. The rest is the agent's own: finding the interpreter, checking out,
copying, isolating, judging. Plain and sandboxed alternate, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agent.patching.applying import apply_proposal
from agent.patching.parsing import parse_reply
from agent.repository.snapshot import take_snapshot
from agent.types import AppliedPatch, ParseFailure, PatchProposal, Problem
from agent.types.protocols import Snapshot
from agent.verify.validator import SandboxValidator, ValidationOptions
from benchmarks.target import FILES, ISSUE, REPLY, make_target
from sandbox.bwrap.backend import BwrapSandbox

_PROJECT = ("billing_example/test_invoice.py",)
_NEW = ("billing_example/test_rounding.py",)


def main() -> None:
    """Measure and print medians."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--files", type=int, default=FILES)
    options.add_argument("--repeat", type=int, default=5)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="patchshot-bench-") as folder:
        root = Path(folder)
        count, _ = make_target(root / "target", chosen.files)
        print(f"target: {count:,} Python files")
        snapshot = take_snapshot(root / "target")
        proposal, patch = _patch(snapshot)
        rows = [measure(root, snapshot, proposal, patch) for _ in range(chosen.repeat)]
    for name in rows[0]:
        print(f"{name:<42} {statistics.median(row[name] for row in rows):6.2f} s")


def measure(
    root: Path, snapshot: Snapshot, proposal: PatchProposal, patch: AppliedPatch
) -> dict[str, float]:
    """One round: seconds by name."""
    tests = plain(root / "target", proposal, patch)
    cache = root / f"cache{time.monotonic_ns()}"
    first, again = asyncio.run(validated(snapshot, proposal, patch, cache))
    later, _ = asyncio.run(validated(snapshot, proposal, patch, cache))
    return {
        "the four test runs, plain, in a row": sum(tests),
        "validating (nothing known)": first,
        "  beside the tests": first - sum(tests),
        "validating again (second attempt)": again,
        "  beside its three runs": again - sum(tests) * 3 / 4,
        "validating (base run kept on disk)": later,
        "  beside its three runs ": later - sum(tests) * 3 / 4,
    }


def plain(target: Path, proposal: PatchProposal, patch: AppliedPatch) -> list[float]:
    """Seconds of A, B, C and C' without the agent; the target is as before at the end."""
    test = proposal.reproduction_test
    assert test is not None
    seconds = [_pytest(target, _PROJECT)]
    (target / test.path).write_text(test.content)
    seconds.append(_pytest(target, _NEW))
    for change in patch.changes:
        (target / change.path).write_bytes(change.after or b"")
    seconds += [_pytest(target, _PROJECT), _pytest(target, _NEW)]
    for change in patch.changes:
        (target / change.path).write_bytes(change.before or b"")
    (target / test.path).unlink()
    return seconds


def _pytest(target: Path, paths: tuple[str, ...]) -> float:
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *paths],
        cwd=target,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ".", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        timeout=120,
        check=False,
    )
    return time.perf_counter() - started


async def validated(
    snapshot: Snapshot, proposal: PatchProposal, patch: AppliedPatch, cache: Path
) -> tuple[float, float]:
    """Seconds of two validations by one validator."""
    title, _, body = ISSUE.partition("\n")
    options = ValidationOptions(python=Path(sys.executable), cache=cache)
    problem = Problem(title.lstrip("# "), body)
    async with SandboxValidator(snapshot, problem, BwrapSandbox(), options) as validator:
        seconds = []
        for _ in range(2):
            started = time.perf_counter()
            report = await validator.validate(patch, proposal.reproduction_test)
            seconds.append(time.perf_counter() - started)
            assert report.verdict.value == "verified", report.reason
    return seconds[0], seconds[1]


def _patch(snapshot: Snapshot) -> tuple[PatchProposal, AppliedPatch]:
    proposal = parse_reply(REPLY)
    assert not isinstance(proposal, ParseFailure)
    patch = apply_proposal(proposal, snapshot)
    assert isinstance(patch, AppliedPatch)
    return proposal, patch


if __name__ == "__main__":
    main()
