"""Whether the patch applier can be trusted: altered edits and real replies, right, wrong, refused.

`docs/design/patching.md` says what the figures mean.
"""
