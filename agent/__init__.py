"""Patchshot: from an issue to a validated patch in one model call. Start reading at `pipeline`."""

__version__ = "0.2.0.dev0"
