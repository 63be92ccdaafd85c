"""What an issue gives away: the kinds of query that figures are broken down by."""

from __future__ import annotations

from agent.evaluation.gold import Gold
from agent.retrieval.mentions import read_mentions
from agent.types import Problem

PATH = "names the path"
SYMBOL = "names a symbol"
TRACEBACK = "has a traceback"
PROSE = "prose only"
KINDS = (PATH, SYMBOL, TRACEBACK, PROSE)


def query_kinds(problem: Problem, gold: Gold) -> tuple[str, ...]:
    """The kinds of an issue, in the order of `KINDS`; the first three may come together.

    PATH: it writes out the path of a file to change (its last two parts are enough). SYMBOL: it
    writes a name as code, and a function or class to change is called so. TRACEBACK: it has stack
    frames, of whatever. PROSE: none of these.
    """
    mentions = read_mentions(problem)
    paths = [mention.path for mention in mentions.paths]
    paths += [frame.path for frame in mentions.frames]
    words = {part for mention in mentions.names for part in mention.name.split(".")}
    words.update(frame.function for frame in mentions.frames)
    found = []
    if any(_means(path, file) for path in paths for file in gold.files):
        found.append(PATH)
    if any(name.rpartition(":")[2].rpartition(".")[2] in words for name in gold.functions):
        found.append(SYMBOL)
    if mentions.frames:
        found.append(TRACEBACK)
    return tuple(found) or (PROSE,)


def _means(path: str, file: str) -> bool:
    """Whether a written path ends as the file's does: in two parts, or in all it has."""
    wanted = file.split("/")[-2:]
    return path.split("/")[-len(wanted) :] == wanted
