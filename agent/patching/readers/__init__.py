"""Readers of model replies, one for each shape that models write. A reader returns None if the
reply does not have its shape, a `Reading` with all edits, or a `Trouble` if the shape is there but
cannot be read.
"""

from collections.abc import Callable, Sequence

from agent.patching.readers.blocks import read_blocks
from agent.patching.readers.diffs import read_diffs
from agent.patching.readers.envelopes import read_envelopes
from agent.patching.readers.json_objects import read_json
from agent.patching.readers.reply import Outcome, Reply
from agent.patching.readers.whole_files import read_whole_files

READERS: Sequence[Callable[[Reply], Outcome]] = (
    read_json,
    read_envelopes,
    read_blocks,
    read_diffs,
    read_whole_files,
)
"""All readers, strictest first. Of several that read the same edits, the first is reported."""
