"""The command: `python -m benchmarks.verdicts [--clones DIR --cache DIR]`. Prints one table."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from agent.errors import PatchshotError
from agent.types import Verdict
from agent.verify.environments import Environments, read_spec
from benchmarks.keeping import keep, machine
from benchmarks.verdicts.fixes import read_fix, rows, validate_fix
from sandbox.choose import check_isolation, make_sandbox
from tests.attack.noop.corpus import NO_OPS
from tests.attack.noop.projects import PROJECTS
from tests.attack.noop.running import Place, fixed, make_place, tried
from tests.attack.noop.tables import HONEST, TRICKS

_SPEC = Path(__file__).parents[1] / "instances" / "environments.toml"
_VERIFIED = Verdict.VERIFIED.value
_TABLES = [
    *(("special" if row.special else "trick", row) for row in TRICKS),
    *(("honest", row) for row in HONEST),
]
_OTHERS = {
    "": "patches that fix nothing",
    "control": "honest fixes of the corpus",
    "fix": "real fixes",
    "trick": "tricks of the table",
    "special": "special cases of the table",
    "honest": "honest fixes of the table",
}

Row = tuple[str, str, str, str]  # class, name, verdict, first line of the reason


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code is 1 where a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdicts", description=__doc__)
    parser.add_argument("--clones", type=Path, help="folder of clones; without: no real fixes")
    parser.add_argument("--cache", type=Path, help="folder for the environments of the clones")
    parser.add_argument("--only", default="", help="rows with this text in class or name")
    parser.add_argument("--workers", type=int, default=2, help="patches at a time (2)")
    parser.add_argument("--no-corpus", action="store_true", help="real fixes only")
    parser.add_argument("--no-save", action="store_true", help="do not keep the result")
    given = parser.parse_args(argv)
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="verdicts-") as folder:
        found = list(_measured(given, make_place(Path(folder))))
    summary = _summary(found)
    print("\n" + "\n".join(f"{name:<40} {words}" for name, words in summary.items()))
    if not given.no_save:
        keep("verdicts", {"summary": summary, "rows": found})
    return 0


def _measured(given: argparse.Namespace, place: Place) -> Iterator[Row]:
    tasks: list[partial[Row]] = []
    if not given.no_corpus:
        words = [f"{one.works} {one.name} {one.project}" for one in NO_OPS]
        tasks += [partial(_corpus_row, n, place) for n, w in enumerate(words) if given.only in w]
        tasks += [partial(_control_row, name, place) for name in PROJECTS if given.only in name]
        words = [f"{kind} {row.name}" for kind, row in _TABLES]
        tasks += [partial(_table_row, n, place) for n, w in enumerate(words) if given.only in w]
    if given.clones is not None:
        cache = given.cache or given.clones / ".cache"
        fixes = [(repo, commit) for repo, commit in rows() if given.only in repo]
        tasks += [partial(_fix_row, given.clones, cache, *fix) for fix in fixes]
    with ProcessPoolExecutor(given.workers) as pool:
        for works, name, verdict, reason in pool.map(partial.__call__, tasks):
            print(f"{works:<10} {name:<48} {verdict:<14} {reason[:110]}", flush=True)
            yield works, name, verdict, reason


def _corpus_row(at: int, place: Place) -> Row:
    noop = NO_OPS[at]
    verdict, reason = tried(noop, place)
    return noop.works, f"{noop.name}{' (limit)' if noop.limit else ''}", verdict, reason


def _control_row(name: str, place: Place) -> Row:
    return "control", f"the honest fix of {name}", *fixed(name, place)


def _table_row(at: int, place: Place) -> Row:
    kind, row = _TABLES[at]
    return kind, row.name, *row.tried(place, place.targets / "tables")


def _fix_row(clones: Path, cache: Path, repo: str, commit: str) -> Row:
    environments = Environments(
        read_spec(_SPEC), cache, note=lambda line: print(line, file=sys.stderr)
    )
    try:
        fix = read_fix(clones, repo, commit)
        sandbox = check_isolation(make_sandbox(unsafe=False))
        report = validate_fix(fix, clones, environments, sandbox)
    except PatchshotError as error:
        return "fix", f"{repo} {commit[:10]}", "error", str(error)
    return "fix", fix.name, report.verdict.value, report.reason.partition("\n")[0]


def _summary(found: Sequence[Row]) -> dict[str, str]:
    limits = {f"{noop.name} (limit)" for noop in NO_OPS if noop.limit}
    summary = {}
    for kind, words in _OTHERS.items():
        mine = [row for row in found if (row[0] if row[0] in _OTHERS else "") == kind]
        kept = [row for row in mine if row[2] == _VERIFIED]
        told = sum(row[1] in limits for row in kept)
        if mine:
            limited = f", {told} of them documented as a limit" if told else ""
            summary[f"{words}, VERIFIED"] = f"{len(kept)} of {len(mine)}{limited}"
    return summary


if __name__ == "__main__":
    sys.exit(main())
