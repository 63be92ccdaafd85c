"""What workers share: the total budget and the request rate; and the journal of both."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from agent.batch.journal import Granted, Journal, Settled, StageFinished
from agent.batch.messages import (
    Answer,
    Ask,
    Dropped,
    Ended,
    Job,
    OnTape,
    Pace,
    Paid,
    Report,
    StageDone,
)
from agent.batch.tally import cost_in_words

NO_PRICE = (
    "--max-total-cost is set, but the model's price is not known: set PATCHSHOT_PRICE_INPUT and "
    "PATCHSHOT_PRICE_OUTPUT (US dollars per million tokens)"
)


class Pacer:
    """Lets requests through one after the other, at even distances.

    `per_minute` None: at once. Evenly, because servers refill their buckets so: a burst at the
    start of each minute would be refused.
    """

    def __init__(self, per_minute: float | None) -> None:
        self._distance = 0.0 if per_minute is None else 60.0 / per_minute
        self._next = 0.0

    async def turn(self) -> None:
        """Waits for this request's turn."""
        now = asyncio.get_running_loop().time()
        slot = max(now, self._next)
        self._next = slot + self._distance
        if slot > now:
            await asyncio.sleep(slot - now)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What all workers together may do; None: unbounded. Dollars, requests."""

    total_cost: float | None = None
    per_minute: float | None = None


class Treasury:
    """Gives leave for calls so that their sum stays within the total, worst cases included.

    The `agent.batch.engine.Broker` of a run. A call that does not fit waits while calls under way
    may still turn out cheaper; where even that would not help it is refused. `on_stage` is told of
    stages as they finish.
    """

    def __init__(
        self,
        journal: Journal,
        bounds: Bounds,
        on_stage: Callable[[Job, str], None] = lambda _job, _stage: None,
    ) -> None:
        self._journal = journal
        self._bounds = bounds
        self._pacer = Pacer(bounds.per_minute)
        self._on_stage = on_stage
        self._changed = asyncio.Condition()
        self._live: list[tuple[int, Granted]] = []  # by attempt, of workers that are there

    @property
    def spent_usd(self) -> float:
        """What has been paid, and what may have been: the worst case of calls without an end."""
        state = self._journal.state
        return state.spent_usd + state.held_usd()

    def spent_in_words(self) -> str:
        """Dollars, calls under way not counted, and how many replies have no price."""
        settled = max(0.0, self.spent_usd - self._under_way())
        return cost_in_words(settled, self._journal.state.unpriced)

    async def hear(self, job: Job, report: Report) -> Answer | None:
        """Journal the report and answer it."""
        match report:
            case Pace():
                await self._pacer.turn()
                return Answer(granted=True)
            case Ask():
                await self._pacer.turn()
                return await self._leave(job, report)
            case Paid():
                await self._settle(job, report)
            case Dropped():
                await self._drop(job, report)
            case OnTape():
                self._recover(job, report)
            case StageDone():
                self._stage(job, report)
            case Ended():
                pass
        return None

    async def gone(self, job: Job) -> None:
        """Calls of a worker that has gone are not waited for; their worst case stays spent."""
        async with self._changed:
            self._live = [
                (attempt, granted)
                for attempt, granted in self._live
                if (granted.id, attempt) != (job.task.instance_id, job.attempt)
            ]
            self._changed.notify_all()

    async def _leave(self, job: Job, ask: Ask) -> Answer:
        name = job.task.instance_id
        granted = Granted(id=name, sha256=ask.sha256, worst_usd=ask.worst_usd)
        async with self._changed:
            while reason := self._refusal(ask.worst_usd):
                if ask.worst_usd is None or not self._may_yet_fit(ask.worst_usd):
                    return Answer(granted=False, reason=reason)
                await self._changed.wait()
            self._journal.append(granted)
            self._live.append((job.attempt, granted))
        return Answer(granted=True)

    def _refusal(self, worst: float | None) -> str:
        """Why a call of this worst case does not fit now, "" where it does."""
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

    async def _settle(self, job: Job, paid: Paid) -> None:
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

    async def _drop(self, job: Job, dropped: Dropped) -> None:
        """A call that was refused costs nothing; one that was cut off, what it may have cost."""
        name, cost = job.task.instance_id, 0.0
        if dropped.charged:
            open_calls = self._journal.state.open
            worst = [g.worst_usd for g in open_calls if (g.id, g.sha256) == (name, dropped.sha256)]
            cost = (worst[0] if worst else None) or 0.0
        entry = Settled(id=name, sha256=dropped.sha256, how="dropped", cost_usd=cost)
        await self._close(job, entry)

    async def _close(self, job: Job, entry: Settled) -> None:
        async with self._changed:
            self._journal.append(entry)
            wanted = (job.attempt, entry.id, entry.sha256)
            for position, (attempt, granted) in enumerate(self._live):
                if (attempt, granted.id, granted.sha256) == wanted:
                    del self._live[position]
                    break
            self._changed.notify_all()

    def _recover(self, job: Job, tape: OnTape) -> None:
        """Settle calls whose reply was kept by a worker that could not tell any more."""
        name, state = job.task.instance_id, self._journal.state
        seen: Counter[str] = Counter()
        for sha256, cost, input_tokens, output_tokens in tape.replies:
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

    def _stage(self, job: Job, done: StageDone) -> None:
        self._journal.append(
            StageFinished(
                id=job.task.instance_id,
                attempt=job.attempt,
                stage=done.stage,
                seconds=done.seconds,
                summary=done.summary,
            )
        )
        self._on_stage(job, done.stage)
