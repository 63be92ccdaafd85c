"""`python -m benchmarks.patching [--corpora DIR]`: 1 if an edit was applied wrongly."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.patching.cases import Outcome
from benchmarks.patching.scorecard import CORPORA, all_cases, explain, report, run


def main() -> int:
    """Print the scorecard and every case that was applied wrongly."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.patching", description=__doc__)
    parser.add_argument("--corpora", type=Path, help="folder of clones (owner+name)")
    parser.add_argument("--corpus", action="append", choices=CORPORA, help="may be repeated")
    parser.add_argument("--changes", type=int, default=15, help="real changes per project")
    parser.add_argument("--each", type=int, default=5, help="perturbations per change and shape")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--show", action="append", default=[], choices=[str(one) for one in Outcome],
        help="print these cases too; wrong ones are always printed",
    )  # fmt: skip
    options = parser.parse_args()
    rows = run(
        all_cases(
            options.corpora, options.changes, options.each, options.seed,
            options.corpus or CORPORA,
        )
    )  # fmt: skip
    print(report(rows))
    for row in rows:
        if row.outcome is Outcome.WRONG or row.outcome in options.show:
            print(explain(row))
    return 1 if any(row.outcome is Outcome.WRONG for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
