"""The figures of a run, shown at the top of the page and printed by `agent report --json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict

from agent.report.plots import Distribution, Sample, distribution, sample_of
from agent.report.rows import ReportRow, ReportRun, shares
from agent.report.text import dollars, seconds, seconds_of_axis, tokens

# Statuses without a final result.
UNFINISHED = frozenset({"set-aside", "row", "stopped", "running", "cut-off", "not-begun"})

# Best first, for columns and filters.
VERDICTS = ("verified", "not-regressed", "unverified", "suspect", "regressed", "broken-syntax")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Quantiles(_Model):
    """Quantiles of one measure over the instances for which it is known."""

    number: int
    least: float
    median: float
    p90: float
    most: float


class CauseCount(_Model):
    """The number of instances that ended for one reason; `kinds` are more precise reasons."""

    group: str
    count: int
    kinds: dict[str, int]


class VerdictCount(_Model):
    """How many patches with one verdict resolve their issue, according to the evaluation."""

    verdict: str
    resolved: int
    unresolved: int
    not_evaluated: int


class ReportSummary(_Model):
    """The figures of a report. Dollars and seconds; None stands for unknown.

    `finished` counts instances with a final result. `cost_usd` is the sum for replies of known
    price, `unpriced` counts instances with replies of unknown price, and `held_usd` is the sum of
    the worst cases of calls that may have been paid.
    """

    run: str
    instances: int
    finished: int
    accepted: int
    verified: int
    evaluated: int
    resolved: int
    statuses: dict[str, int]
    verdicts: dict[str, int]
    causes: tuple[CauseCount, ...]
    verdict_by_resolved: tuple[VerdictCount, ...]
    cost_usd: float | None
    unpriced: int
    held_usd: float
    input_tokens: int
    output_tokens: int
    calls: int
    seconds: float
    cost_quantiles: Quantiles | None
    seconds_quantiles: Quantiles | None
    model: str
    versions: tuple[str, ...]
    begun: tuple[str, ...]
    live: bool
    output: str = ""
    bytes: int = 0


def summarise(run: ReportRun) -> ReportSummary:
    """Return the figures of a run."""
    rows = run.rows
    known = [row.cost_usd for row in rows if row.cost_usd is not None]
    evaluated = [row for row in rows if row.resolved is not None]
    return ReportSummary(
        run=run.name,
        instances=len(rows),
        finished=sum(_is_finished(row) for row in rows),
        accepted=sum(row.status == "accepted" for row in rows),
        verified=sum(row.verdict == "verified" for row in rows),
        evaluated=len(evaluated),
        resolved=sum(row.resolved is True for row in evaluated),
        statuses=_counted(row.status for row in rows),
        verdicts=_counted(row.verdict or "none" for row in rows),
        causes=tuple(
            CauseCount(group=share.group, count=share.count, kinds=dict(share.kinds))
            for share in shares(row.cause for row in rows)
        ),
        verdict_by_resolved=_crossed(rows) if evaluated else (),
        cost_usd=round(sum(known), 6) if known else None,
        unpriced=sum(row.cost_usd is None and row.calls > 0 for row in rows),
        held_usd=round(run.held_usd, 6),
        input_tokens=sum(row.input_tokens for row in rows),
        output_tokens=sum(row.output_tokens for row in rows),
        calls=sum(row.calls for row in rows),
        seconds=round(sum(row.seconds or 0.0 for row in rows), 3),
        cost_quantiles=_quantiles(_costs(rows)),
        seconds_quantiles=_quantiles(_times(rows)),
        model=run.model,
        versions=tuple(dict.fromkeys(begun.version for begun in run.begun)),
        begun=tuple(begun.time for begun in run.begun),
        live=run.live,
    )


def plots(rows: Sequence[ReportRow]) -> tuple[Distribution, ...]:
    """Return the plots of cost, time and tokens. Plots without values are left out."""
    token_counts = sample_of(row.tokens for row in rows if row.tokens)
    found = (
        ("cost", "Cost of an instance", "US dollars", _costs(rows), dollars, dollars),
        ("time", "Time of an instance", "wall clock", _times(rows), seconds, seconds_of_axis),
        ("tokens", "Tokens of an instance", "of all calls", token_counts, tokens, tokens),
    )
    return tuple(
        distribution(name, title, unit, sample, words, short)
        for name, title, unit, sample, words, short in found
        if sample and sample.values[-1] > 0
    )


def _is_finished(row: ReportRow) -> bool:
    return row.status not in UNFINISHED and row.seconds is not None


def _costs(rows: Iterable[ReportRow]) -> Sample:
    return sample_of(row.cost_usd for row in rows if row.calls)


def _times(rows: Iterable[ReportRow]) -> Sample:
    return sample_of(row.seconds for row in rows)


def _counted(names: Iterable[str]) -> dict[str, int]:
    """Return counts by name, the most frequent first."""
    return dict(sorted(Counter(names).items(), key=lambda pair: (-pair[1], pair[0])))


def _quantiles(sample: Sample) -> Quantiles | None:
    if not sample:
        return None
    least, median, p90, most = (round(sample.quantile(s), 6) for s in (0.0, 0.5, 0.9, 1.0))
    return Quantiles(number=len(sample.values), least=least, median=median, p90=p90, most=most)


def _crossed(rows: Iterable[ReportRow]) -> tuple[VerdictCount, ...]:
    """Count verdicts against the evaluation, best verdict first, missing verdict last."""
    counts = Counter((row.verdict, row.resolved) for row in rows)
    there = {verdict for verdict, _ in counts}
    order = [v for v in VERDICTS if v in there] + sorted(there - {*VERDICTS, ""})
    return tuple(
        VerdictCount(
            verdict=verdict or "none",
            resolved=counts[verdict, True],
            unresolved=counts[verdict, False],
            not_evaluated=counts[verdict, None],
        )
        for verdict in [*order, *([""] if "" in there else [])]
    )
