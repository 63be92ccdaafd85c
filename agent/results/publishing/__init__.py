"""Publishes an accepted patch: a commit on a new branch, and a pull or merge request for it.

`Publication` is what the user asked for. `prepare` finds out before a model call is paid whether it
can be done, and `publish` does it. The repository only names where it comes from; a token is sent
to the hosts of GitHub and GitLab, or to the host that the user's environment names.
"""

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
