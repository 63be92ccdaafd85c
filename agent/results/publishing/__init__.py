"""Publishes an accepted patch: a commit on a new branch, and a pull or merge request for it."""

from agent.results.publishing.forge import Forge, find_forge
from agent.results.publishing.publication import (
    Publication,
    PublicationOutcome,
    PublicationPlan,
    commit_message,
    describe_result,
    prepare,
    publish,
)

__all__ = [
    "Forge",
    "Publication",
    "PublicationOutcome",
    "PublicationPlan",
    "commit_message",
    "describe_result",
    "find_forge",
    "prepare",
    "publish",
]
