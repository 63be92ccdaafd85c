"""Publishes an accepted patch: a commit on a new branch, and a pull request for it."""

from agent.results.publishing.forge import Forge as Forge
from agent.results.publishing.forge import find_forge as find_forge
from agent.results.publishing.publication import Publication as Publication
from agent.results.publishing.publication import PublicationOutcome as PublicationOutcome
from agent.results.publishing.publication import PublicationPlan as PublicationPlan
from agent.results.publishing.publication import commit_message as commit_message
from agent.results.publishing.publication import describe_result as describe_result
from agent.results.publishing.publication import prepare as prepare
from agent.results.publishing.publication import publish as publish
from agent.results.publishing.publication import review_of as review_of
