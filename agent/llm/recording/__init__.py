"""Recorded model exchanges: an optional part that nothing imports unless it is asked for.

A recording is a file of JSON Lines, one `Exchange` a line. `Recorder` writes one (`--record`)
through `RecordingChatModel` and `RecordingEmbedder`. `Recording` reads one (`--replay`) and answers
from it through `ReplayingChatModel` and `ReplayingEmbedder`. `ReplyRecording` does both, so that
no reply is paid twice: `ReplyGate` puts it around the model of a batch or of a kept run.
"""

from agent.llm.recording.exchanges import (
    ChatExchange,
    completion_of,
    exchange_of,
    format_exchange,
    parse_exchange,
)
from agent.llm.recording.paid_replies import ReplyGate, ReplyRecording
from agent.llm.recording.recordings import (
    Recorder,
    Recording,
    RecordingChatModel,
    RecordingEmbedder,
    ReplayingChatModel,
    ReplayingEmbedder,
)

__all__ = [
    "ChatExchange",
    "Recorder",
    "Recording",
    "RecordingChatModel",
    "RecordingEmbedder",
    "ReplayingChatModel",
    "ReplayingEmbedder",
    "ReplyGate",
    "ReplyRecording",
    "completion_of",
    "exchange_of",
    "format_exchange",
    "parse_exchange",
]
