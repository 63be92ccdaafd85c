"""`python -m benchmarks.patching scorecard|fuzz|speed`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.patching import fuzz, speed
from benchmarks.patching.cases import Outcome
from benchmarks.patching.scorecard import (
    CORPORA,
    OURS,
    all_cases,
    as_json,
    explain,
    missing_corpora,
    report,
    run,
)
from benchmarks.patching.written import written_cases

# Real changes per project, and perturbations of each in each shape.
_CHANGES = 15
_EACH = 5


def _scorecard(options: argparse.Namespace) -> int:
    corpora = options.corpora
    cases = (
        all_cases(corpora, options.changes, options.each, options.seed, options.corpus or CORPORA)
        if corpora
        else written_cases(options.seed)
    )
    chosen = (case for case in cases if options.only in case.id)
    score = run(chosen, foreign=not options.ours_only, progress=_progress)
    score.missing = missing_corpora(corpora) if corpora else ["all (no --corpora given)"]
    print(report(score))
    shown = {Outcome(name) for name in options.show}
    for row in score.of(OURS):
        if row.outcome is Outcome.WRONG or row.outcome in shown:
            print(explain(row))
    if options.json:
        options.json.write_text(as_json(score))
    return 1 if score.wrong() else 0


def _progress(number: int) -> None:
    if number % 100 == 0:
        print(f"\r{number} cases", end="", file=sys.stderr, flush=True)


def _fuzz(options: argparse.Namespace) -> int:
    return fuzz.main(options.cases, options.seed, options.git_sample, options.first)


def _speed(options: argparse.Namespace) -> int:
    return speed.main(options.repeat)


def main() -> int:
    """Parse the arguments and run one of the three; 1 if something is not as it must be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.patching", description=__doc__)
    commands = parser.add_subparsers(required=True)
    card = commands.add_parser("scorecard", help="right, wrong, refused, against other appliers")
    card.add_argument("--corpora", type=Path, help="folder of fetched repositories (owner+name)")
    card.add_argument(
        "--corpus", action="append", choices=CORPORA, help="only this one (may be repeated)"
    )
    card.add_argument("--json", type=Path, help="every row, for comparing runs")
    card.add_argument("--changes", type=int, default=_CHANGES, help="real changes per project")
    card.add_argument("--each", type=int, default=_EACH, help="perturbations per change and shape")
    card.add_argument("--seed", type=int, default=1)
    card.add_argument("--only", default="", help="only cases whose id has this text")
    card.add_argument("--ours-only", action="store_true", help="no git apply, no patch")
    card.add_argument(
        "--show", action="append", default=[], choices=[str(one) for one in Outcome],
        help="print these cases of ours too; wrong ones are always printed",
    )  # fmt: skip
    card.set_defaults(run=_scorecard)
    noise = commands.add_parser("fuzz", help="mutated replies")
    noise.add_argument("--cases", type=int, default=100_000)
    noise.add_argument("--seed", type=int, default=1)
    noise.add_argument("--first", type=int, default=0, help="number of the first case")
    noise.add_argument("--git-sample", type=int, default=5000, help="ask git once in so many")
    noise.set_defaults(run=_fuzz)
    clock = commands.add_parser("speed", help="large replies, large files, growth")
    clock.add_argument("--repeat", type=int, default=3)
    clock.set_defaults(run=_speed)
    options = parser.parse_args()
    code: int = options.run(options)
    return code


if __name__ == "__main__":
    sys.exit(main())
