"""The syntax check of validation: the one that the applier holds lenient matches to as well."""

from __future__ import annotations

from agent.patching.syntax import check_syntax, doubtful

__all__ = ["check_syntax", "doubtful"]
