"""The budget and the request rate that all workers share, recorded in the journal."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from agent.batch.journal import Granted, Journal, Settled, StageEntry
from agent.batch.messages import (
    Answer,
    Ask,
    AttemptEnded,
    Dropped,
    EarlierReplies,
    Pace,
    Paid,
    SolveJob,
    StageDone,
    WorkerReport,
)
from agent.batch.progress import cost_in_words

NO_PRICE = (
    "--max-total-cost is set, but the model's price is not known: set PATCHSHOT_PRICES "
    "to IN,OUT (US dollars per million tokens)"
)


# Seconds for which a call that does not fit yet is kept waiting for an answer. A worker asks one
# question at a time, and the call to wait for may be its own, whose end it can only report between
# two questions.
_WAIT_SECONDS = 0.5


class Pacer:
    """Spaces requests evenly, `per_minute` of them a minute; None does not limit them.

    Servers refill their own limits evenly and would refuse a burst at the start of each minute.
    """

    def __init__(self, per_minute: float | None) -> None:
        self._distance = 0.0 if per_minute is None else 60.0 / per_minute
        self._next = 0.0

    async def turn(self) -> None:
        """Wait until this request may be sent."""
        now = asyncio.get_running_loop().time()
        slot = max(now, self._next)
        self._next = slot + self._distance
        if slot > now:
            await asyncio.sleep(slot - now)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of all workers together: dollars, and requests a minute; None for no limit."""

    total_cost: float | None = None
    per_minute: float | None = None


class SharedBudget:
    """Grants calls so that their sum stays within the total, worst cases included.

    It is the `ReportHandler` of a run. A call that does not fit waits (its worker asks again) while
    calls under way may still turn out cheaper, and is refused if even that would not help.
    `on_stage` is called with each stage that has finished.
    """

    def __init__(
        self,
        journal: Journal,
        bounds: Bounds,
        on_stage: Callable[[SolveJob, str], None] = lambda _job, _stage: None,
    ) -> None:
        self._journal = journal
        self._bounds = bounds
        self._pacer = Pacer(bounds.per_minute)
        self._on_stage = on_stage
        self._changed = asyncio.Condition()
        self._live: list[tuple[int, Granted]] = []  # attempt and grant, of living workers

    @property
    def spent_usd(self) -> float:
        """Dollars paid, with the worst cases of calls that are not settled."""
        state = self._journal.state
        return state.spent_usd + state.held_usd()

    def spent_in_words(self) -> str:
        """Return the dollars paid, without calls under way, and the number of unpriced replies."""
        settled = max(0.0, self.spent_usd - self._under_way())
        return cost_in_words(settled, self._journal.state.unpriced)

    async def handle(self, job: SolveJob, report: WorkerReport) -> Answer | None:
        """Write the report to the journal and answer it."""
        match report:
            case Pace():
                await self._pacer.turn()
                return Answer(granted=True)
            case Ask():
                if not report.again:
                    await self._pacer.turn()
                return await self._grant(job, report)
            case Paid():
                await self._settle(job, report)
            case Dropped():
                await self._drop(job, report)
            case EarlierReplies():
                self._recover(job, report)
            case StageDone():
                self._stage(job, report)
            case AttemptEnded():
                pass
        return None

    async def worker_exited(self, job: SolveJob) -> None:
        """Stop waiting for the calls of a worker; their worst cases stay spent."""
        async with self._changed:
            self._live = [
                (attempt, granted)
                for attempt, granted in self._live
                if (granted.id, attempt) != (job.task.instance_id, job.attempt)
            ]
            self._changed.notify_all()

    async def _grant(self, job: SolveJob, ask: Ask) -> Answer:
        name = job.task.instance_id
        granted = Granted(id=name, sha256=ask.sha256, worst_usd=ask.worst_usd)
        end = asyncio.get_running_loop().time() + _WAIT_SECONDS
        async with self._changed:
            while reason := self._refusal(ask.worst_usd):
                if ask.worst_usd is None or not self._may_yet_fit(ask.worst_usd):
                    return Answer(granted=False, reason=reason)
                if asyncio.get_running_loop().time() >= end:
                    return Answer(granted=False, reason=reason, later=True)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(end):
                        await self._changed.wait()
            self._journal.append(granted)
            self._live.append((job.attempt, granted))
        return Answer(granted=True)

    def _refusal(self, worst: float | None) -> str:
        """Return why a call of this worst case does not fit now, "" if it does."""
        total = self._bounds.total_cost
        if total is None:
            return ""
        if worst is None:
            return NO_PRICE
        left = total - self.spent_usd
        if worst <= left:
            return ""
        return (
            f"the next call may cost ${worst:.4f}, but ${max(0.0, left):.4f} of the run's "
            f"${total:.4f} are left: raise --max-total-cost and run again to go on"
        )

    def _may_yet_fit(self, worst: float) -> bool:
        assert self._bounds.total_cost is not None
        settled = self.spent_usd - self._under_way()
        return bool(self._live) and settled + worst <= self._bounds.total_cost

    def _under_way(self) -> float:
        return sum(granted.worst_usd or 0.0 for _, granted in self._live)

    async def _settle(self, job: SolveJob, paid: Paid) -> None:
        await self._close(
            job,
            Settled(
                id=job.task.instance_id,
                sha256=paid.sha256,
                how="paid",
                cost_usd=paid.cost_usd,
                input_tokens=paid.input_tokens,
                output_tokens=paid.output_tokens,
            ),
        )

    async def _drop(self, job: SolveJob, dropped: Dropped) -> None:
        """Settle a call without a reply, at its worst case if it may have been charged."""
        name, cost = job.task.instance_id, 0.0
        if dropped.charged:
            open_calls = self._journal.state.open
            worst = [g.worst_usd for g in open_calls if (g.id, g.sha256) == (name, dropped.sha256)]
            cost = (worst[0] if worst else None) or 0.0
        entry = Settled(id=name, sha256=dropped.sha256, how="dropped", cost_usd=cost)
        await self._close(job, entry)

    async def _close(self, job: SolveJob, entry: Settled) -> None:
        async with self._changed:
            self._journal.append(entry)
            wanted = (job.attempt, entry.id, entry.sha256)
            for position, (attempt, granted) in enumerate(self._live):
                if (attempt, granted.id, granted.sha256) == wanted:
                    del self._live[position]
                    break
            self._changed.notify_all()

    def _recover(self, job: SolveJob, earlier: EarlierReplies) -> None:
        """Settle calls whose reply a worker recorded but could not report."""
        name, state = job.task.instance_id, self._journal.state
        seen: Counter[str] = Counter()
        for sha256, cost, input_tokens, output_tokens in earlier.replies:
            seen[sha256] += 1
            waiting = any((g.id, g.sha256) == (name, sha256) for g in state.open)
            if seen[sha256] > state.settled[name, sha256] and waiting:
                self._journal.append(
                    Settled(
                        id=name,
                        sha256=sha256,
                        how="recovered",
                        cost_usd=cost,
                        input_tokens=input_tokens,
                        output_tokens=output_tokens,
                    )
                )

    def _stage(self, job: SolveJob, done: StageDone) -> None:
        self._journal.append(
            StageEntry(
                id=job.task.instance_id,
                attempt=job.attempt,
                stage=done.stage,
                seconds=done.seconds,
                summary=done.summary,
            )
        )
        self._on_stage(job, done.stage)
