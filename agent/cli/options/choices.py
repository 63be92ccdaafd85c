"""Choices that options offer."""

from __future__ import annotations

import enum


class Dirty(enum.StrEnum):
    """What to do with uncommitted changes of the target."""

    INCLUDE = "include"
    IGNORE = "ignore"
    REFUSE = "refuse"


class Embed(enum.StrEnum):
    """Where embeddings come from."""

    AUTO = "auto"
    OFF = "off"
    LOCAL = "local"
    REMOTE = "remote"


class Backend(enum.StrEnum):
    """What isolates the target's code."""

    AUTO = "auto"
    BWRAP = "bwrap"
    CONTAINER = "container"
    LANDLOCK = "landlock"


class Split(enum.StrEnum):
    """Which projects of a data set."""

    TUNE = "tune"
    HELD_OUT = "held-out"
    ALL = "all"


class PredictionsForm(enum.StrEnum):
    """How predictions are written."""

    DICT = "dict"
    LIST = "list"
    JSONL = "jsonl"


class EngineName(enum.StrEnum):
    """Where the instances of a batch are solved."""

    LOCAL = "local"
    RAY = "ray"


class Opened(enum.StrEnum):
    """Whether a browser is started: "auto" only for a person at a desktop."""

    AUTO = "auto"
    YES = "yes"
    NO = "no"


class StoreFallback(enum.StrEnum):
    """What happens where the store cannot be reached."""

    EMBEDDED = "embedded"
    STOP = "stop"


class Expand(enum.StrEnum):
    """What is added to a query."""

    OFF = "off"
    PROJECT = "project"
    LLM = "llm"


class Intents(enum.StrEnum):
    """Who writes intents."""

    TEMPLATES = "templates"
    LLM = "llm"
