"""The report: the SWE-bench harness's own shape, and beside it what else is known.

Per instance: `patch_is_None`, `patch_exists`, `patch_successfully_applied`, `resolved` and
`tests_status`. Of a run: counts and lists of ids, `schema_version` 2. Source: the reports that
`swebench.harness.run_evaluation` writes, by their field names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from agent.scoring.problems import Problem

Outcome = Literal["resolved", "unresolved", "empty-patch", "not-applied", "error"]

# "stopped": by the user, and so nothing that is kept.
ErrorKind = Literal[
    "", "row", "repository", "test-patch", "environment", "sandbox", "crash", "stopped"
]

# Of the harness: a run's report of this shape.
SCHEMA_VERSION = 2


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GivenIds(_Value):
    """Ids by what came of them, in the order of the row."""

    success: tuple[str, ...] = ()
    failure: tuple[str, ...] = ()


class GivenStatus(_Value):
    """The given tests. The last two lists are the harness's own and stay empty there too."""

    FAIL_TO_PASS: GivenIds = GivenIds()
    PASS_TO_PASS: GivenIds = GivenIds()
    FAIL_TO_FAIL: GivenIds = GivenIds()
    PASS_TO_FAIL: GivenIds = GivenIds()


class InstanceReport(_Value):
    """What the harness says of an instance."""

    patch_is_None: bool
    patch_exists: bool
    patch_successfully_applied: bool = False
    resolved: bool = False
    tests_status: GivenStatus | None = None


class DatasetCheck(_Value):
    """Whether the row itself holds: `problems` in words, none where it does.

    `not_failing`: FAIL_TO_PASS ids that pass without any patch; `not_passing`: PASS_TO_PASS ids
    that do not. `gold_failing`: given ids that fail with the row's own patch; `gold` None: it has
    none.
    """

    not_failing: tuple[str, ...] = ()
    not_passing: tuple[str, ...] = ()
    gold: bool | None = None
    gold_failing: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class Scored(_Value):
    """All that is known of one evaluated instance.

    `error` says what kind of thing went wrong where `outcome` is "error": nothing is then known of
    the patch. `absent` are given ids that the run did not know. `suspicion`: why the run cannot be
    believed; such an instance is not resolved. `key` names what the result depends on. `kept`: an
    earlier run has found it; that is written nowhere.
    """

    instance_id: str
    model: str = ""
    outcome: Outcome
    error: ErrorKind = ""
    reason: str = ""
    report: InstanceReport
    check: DatasetCheck | None = None
    absent: tuple[str, ...] = ()
    suspicion: str = ""
    ended: str = ""
    environment: str = ""
    runner: str = ""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    key: str = ""
    kept: bool = Field(default=False, exclude=True)


class OwnVerdict(_Value):
    """What `agent batch` said of the same patch: `status`, `verdict` as in its verdict.json.

    `same_patch`: whether the prediction is the patch that was judged.
    """

    status: str
    verdict: str | None
    same_patch: bool = True


class Share(_Value):
    """`count` of `total`, and Wilson's 95% interval of the share; None where there is nothing."""

    count: int
    total: int
    share: float | None = None
    low: float | None = None
    high: float | None = None


class Confusion(_Value):
    """Our verdicts against what the tests say.

    `counts` has a row for each verdict and a column for each outcome. `verified_right`: resolved
    among VERIFIED; `accepted_right`: among all that were accepted; `resolved_verified`: VERIFIED
    among resolved. Errors count in none of the shares; a patch that does not apply or is empty is
    not resolved.
    """

    counts: Mapping[str, Mapping[str, int]] = Field(default_factory=dict)
    verified_right: Share
    accepted_right: Share
    resolved_verified: Share
    other_patches: int = 0


class InstanceEntry(InstanceReport):
    """The harness's fields of an instance, and ours."""

    outcome: Outcome
    error: ErrorKind = ""
    reason: str = ""
    own: OwnVerdict | None = None
    check: DatasetCheck | None = None
    absent: tuple[str, ...] = ()
    suspicion: str = ""
    notes: tuple[str, ...] = ()
    environment: str = ""
    runner: str = ""
    seconds: float = 0.0


class RunReport(_Value):
    """The report of a run. The fields up to `schema_version` are the harness's."""

    total_instances: int
    submitted_instances: int
    completed_instances: int
    resolved_instances: int
    unresolved_instances: int
    empty_patch_instances: int
    error_instances: int
    completed_ids: tuple[str, ...]
    incomplete_ids: tuple[str, ...]
    empty_patch_ids: tuple[str, ...]
    submitted_ids: tuple[str, ...]
    resolved_ids: tuple[str, ...]
    unresolved_ids: tuple[str, ...]
    error_ids: tuple[str, ...]
    schema_version: int = SCHEMA_VERSION
    not_applied_ids: tuple[str, ...] = ()
    invalid_ids: tuple[str, ...] = ()
    pending_ids: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    instances: Mapping[str, InstanceEntry] = Field(default_factory=dict)
    confusion: Confusion | None = None
    resolved_share: Share
    seconds: float = 0.0
