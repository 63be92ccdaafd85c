"""The command: `python -m benchmarks.verdicts [--clones DIR --cache DIR]`. Prints one table."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from agent.errors import PatchshotError
from agent.types import Verdict
from agent.verify.environments.preparing import Environments
from agent.verify.environments.spec import read_spec
from benchmarks.keeping import keep, machine
from benchmarks.verdicts.fixes import read_fix, rows, validate_fix
from sandbox.choose import check_isolation, make_sandbox
from tests.attack.noop.corpus import NO_OPS
from tests.attack.noop.projects import PROJECTS
from tests.attack.noop.running import Place, fixed, make_place, tried
from tests.attack.noop.tables import HONEST, TRICKS

_SPEC = Path(__file__).parents[1] / "instances" / "environments.toml"
_VERIFIED = Verdict.VERIFIED.value

Row = tuple[str, str, str, str]
"""Class, name, verdict, first line of the reason."""


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
    tasks: list[Callable[[], Row]] = []
    if not given.no_corpus:
        wanted = [at for at in range(len(NO_OPS)) if _wanted(given, at)]
        tasks += [partial(_corpus_row, at, place) for at in wanted]
        tasks += [partial(_control_row, name, place) for name in PROJECTS if given.only in name]
        for kind, rows_of in (("trick", TRICKS), ("honest", HONEST)):
            numbers = [n for n, row in enumerate(rows_of) if given.only in f"{kind} {row.name}"]
            tasks += [partial(_table_row, kind, number, place) for number in numbers]
    if given.clones is not None:
        cache = given.cache or given.clones / ".cache"
        for repo, commit in rows():
            if given.only in repo:
                tasks.append(partial(_fix_row, given.clones, cache, repo, commit))
    with ProcessPoolExecutor(given.workers) as pool:
        for done in pool.map(_called, tasks):
            works, name, verdict, reason = done
            print(f"{works:<10} {name:<48} {verdict:<14} {reason[:110]}", flush=True)
            yield done


def _called(task: Callable[[], Row]) -> Row:
    return task()


def _wanted(given: argparse.Namespace, at: int) -> bool:
    return given.only in f"{NO_OPS[at].works} {NO_OPS[at].name} {NO_OPS[at].project}"


def _corpus_row(at: int, place: Place) -> Row:
    noop = NO_OPS[at]
    verdict, reason = tried(noop, place)
    return noop.works, f"{noop.name}{' (limit)' if noop.limit else ''}", verdict, reason


def _control_row(name: str, place: Place) -> Row:
    return "control", f"the honest fix of {name}", *fixed(name, place)


def _table_row(kind: str, number: int, place: Place) -> Row:
    row = (TRICKS if kind == "trick" else HONEST)[number]
    kind = "special" if row.special else kind
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
    others = ("control", "fix", "trick", "special", "honest")
    corpus = [row for row in found if row[0] not in others]
    passed = [row for row in corpus if row[2] == _VERIFIED]
    told = [row for row in passed if row[1] in limits]
    summary = {
        "patches that fix nothing, VERIFIED": f"{len(passed)} of {len(corpus)}",
        "of these documented as a limit": str(len(told)),
    }
    for words, kind in (
        ("honest fixes of the corpus", "control"),
        ("real fixes", "fix"),
        ("tricks of the table", "trick"),
        ("special cases of the table", "special"),
        ("honest fixes of the table", "honest"),
    ):
        mine = [row for row in found if row[0] == kind]
        kept = [row for row in mine if row[2] == _VERIFIED]
        if mine:
            share = f" ({len(kept) / len(mine):.1%})"
            summary[f"{words}, VERIFIED"] = f"{len(kept)} of {len(mine)}{share}"
    return summary


if __name__ == "__main__":
    sys.exit(main())
