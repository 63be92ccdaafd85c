"""What a person found on reading results that no truth decides. Ids and digests only, no text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.patching.cases import Attempt, Case, Outcome, digest

REVIEWED = Path(__file__).parent / "reviewed.json"


@dataclass(frozen=True, slots=True)
class Review:
    """The verdict on one result of one case, and why."""

    verdict: Outcome
    why: str


Reviews = Mapping[tuple[str, str], Review]  # by case and digest of the result


def load_reviews(path: Path = REVIEWED) -> Reviews:
    """The reviews kept beside this module; none if there is no file."""
    if not path.is_file():
        return {}
    return {
        (one["case"], one["result"]): Review(Outcome(one["verdict"]), one["why"])
        for one in json.loads(path.read_text())
    }


def reviewed(case: Case, attempt: Attempt, judged: Outcome, reviews: Reviews) -> Outcome:
    """The judgement, or the review of this very result where there is one."""
    review = reviews.get((case.id, digest(attempt.changed)))
    return review.verdict if review else judged
