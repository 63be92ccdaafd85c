"""Readers of model replies, one module for each shape that models write.

To add a shape, write a module with a function `read_x(reply, name) -> Outcome` (see
`agent.patching.readers.base`) and add one line to `READERS`. The function returns

- None if the reply does not have this shape,
- a `Reading` with the edits and the spans of the text that they were read from,
- a `Trouble` if the shape is there but cannot be read. It never returns a part of the edits.

`agent.patching.parsing` calls every reader and decides what a reply that matches several shapes
means. Add examples of the shape to `tests/unit/patching/test_readers_shapes.py`.
"""

from collections.abc import Sequence

from agent.patching.readers.base import Reader
from agent.patching.readers.blocks import read_blocks
from agent.patching.readers.diffs import read_diffs
from agent.patching.readers.envelopes import read_envelopes
from agent.patching.readers.json_objects import (
    is_clean,
    json_reader,
    read_loose_edits,
    read_patch_strings,
)
from agent.patching.readers.whole_files import read_whole_files

READERS: Sequence[Reader] = (
    Reader("json", json_reader(lambda found: found.whole and is_clean(found))),
    Reader("json-fenced", json_reader(lambda found: found.fenced and is_clean(found))),
    Reader("json-prose", json_reader(is_clean)),
    Reader("json-lenient", json_reader(lambda _: True)),
    Reader("apply-patch", read_envelopes),
    Reader("search-replace", read_blocks),
    Reader("unified-diff", read_diffs),
    Reader("json-patch", read_patch_strings),
    Reader("json-edits", read_loose_edits),
    Reader("whole-files", read_whole_files),
)
"""All readers, strictest first. Of several that read the same edits, the first is reported."""
