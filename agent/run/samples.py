"""Chooses among several replies to one prompt (`--samples`).

Each different patch is validated with the test of its own reply. Then the tests of all replies are
run on the base and with every patch; those that fail on the base tell the patches apart. Published:
Agentless (arXiv:2407.01489, 3.3: regression tests, then the reproduction tests of all samples, then
the majority) and CodeT (arXiv:2207.10397: patches that pass the same tests support each other).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from agent.repository import language_of
from agent.run.attempts import Attempt
from agent.types import (
    BAD_OUTCOMES,
    AppliedPatch,
    FileChange,
    Outcome,
    ReproductionTest,
    TestRun,
    Verdict,
)
from agent.types.protocols import Snapshot, Validator
from agent.verify import free_path, unsafe

Effect = tuple[tuple[str, object], ...]
"""What a patch makes of each file, by path: equal for patches that do the same."""


@dataclass(frozen=True, slots=True)
class CrossEvaluation:
    """What the tests of all replies say. `passed` holds the tests of each patch, by its effect.

    Only `tests` that fail on the base are in `passed`.
    """

    tests: tuple[ReproductionTest, ...] = ()
    passed: tuple[tuple[Effect, frozenset[str]], ...] = ()

    def of(self, attempt: Attempt) -> frozenset[str]:
        """Return the paths of the tests that an attempt's patch passes."""
        wanted = effect_of(attempt)
        return next((paths for effect, paths in self.passed if effect == wanted), frozenset())


def effect_of(attempt: Attempt) -> Effect:
    """Return what the attempt's patch does; () without a patch.

    Comments and layout of Python files do not count, and of other files spaces at the line ends.
    """
    changes = attempt.patch.changes if attempt.patch is not None else ()
    return tuple((change.path, _normalised(change)) for change in changes)


def _normalised(change: FileChange) -> object:
    if change.after is None:
        return None
    if language_of(change.path) == "python":
        try:
            return ast.dump(ast.parse(change.after))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
    return tuple(line.rstrip() for line in change.after.splitlines()), change.executable


async def cross_evaluate(
    attempts: Sequence[Attempt], validator: Validator, snapshot: Snapshot
) -> CrossEvaluation:
    """Run the tests of all replies on the base and with each different patch.

    Nothing is run where fewer than two patches could be told apart.
    """
    tests = _tests(attempts, snapshot)
    patches = {effect_of(one): one.patch for one in attempts if _is_candidate(one)}
    if len(patches) < 2 or not tests:
        return CrossEvaluation(tests)
    written = tuple(FileChange(t.path, None, t.content.encode("utf-8", "replace")) for t in tests)
    paths = tuple(test.path for test in tests)
    base = await validator.run_tests(AppliedPatch(written, b"", ()), paths)
    telling = [path for path in paths if _fails(base, path)]
    passed = []
    for effect, patch in patches.items() if telling else ():
        assert patch is not None
        both = AppliedPatch((*patch.changes, *written), b"", ())
        run = await validator.run_tests(both, paths)
        passed.append((effect, frozenset(path for path in telling if _passes(run, path))))
    return CrossEvaluation(tests, tuple(passed))


def _is_candidate(attempt: Attempt) -> bool:
    """Whether a patch could be the one: other tests than its own reply's do not refute it."""
    return attempt.report is not None and attempt.report.verdict in (
        Verdict.VERIFIED,
        Verdict.NOT_REGRESSED,
    )


def _tests(attempts: Sequence[Attempt], snapshot: Snapshot) -> tuple[ReproductionTest, ...]:
    found: list[ReproductionTest] = []
    taken = {c.path for one in attempts if one.patch is not None for c in one.patch.changes}
    for attempt in attempts:
        test = attempt.proposal.reproduction_test if attempt.proposal else None
        if test is None or unsafe(test.path) or test.content in {one.content for one in found}:
            continue
        path = free_path(test.path, lambda p: p in taken or snapshot.exists(p))
        taken.add(path)
        found.append(ReproductionTest(path, test.content))
    return tuple(found)


def _outcomes(run: TestRun, path: str) -> list[Outcome]:
    return [o for test, o in run.outcomes.items() if test.partition("::")[0] == path]


def _fails(run: TestRun, path: str) -> bool:
    return any(outcome in BAD_OUTCOMES for outcome in _outcomes(run, path))


def _passes(run: TestRun, path: str) -> bool:
    return not _fails(run, path) and Outcome.PASSED in _outcomes(run, path)


def describe(attempts: Sequence[Attempt], chosen: Attempt, cross: CrossEvaluation) -> str:
    """Say in one line what was drawn and why one was chosen."""
    different = len({effect_of(one) for one in attempts if one.patch is not None})
    words = f"{len(attempts)} replies, {different} different patch{'es' * (different != 1)}"
    if not cross.passed:
        return words
    telling = frozenset[str]().union(*(paths for _, paths in cross.passed))
    tests = f"{len(telling)} test{'s' * (len(telling) != 1)} of the replies"
    return f"{words}; the chosen one passes {len(cross.of(chosen))} of {tests}"


def best_sample(attempts: Sequence[Attempt], cross: CrossEvaluation) -> Attempt:
    """Return the attempt to go on with.

    The verdict decides, then the replies that pass the same tests times the number of these tests,
    the replies with the same patch, the shorter diff, the order.
    """
    effects = [effect_of(one) for one in attempts]
    passed = [cross.of(one) for one in attempts]

    def key(at: int) -> tuple[tuple[int, int], int, int, int, int]:
        one = attempts[at]
        support = passed.count(passed[at]) * len(passed[at])
        size = len(one.patch.diff) if one.patch is not None else 0
        return one.rank, support, effects.count(effects[at]), -size, -at

    return attempts[max(range(len(attempts)), key=key)]
