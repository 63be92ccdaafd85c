"""How many tokens a model takes, as its server words the refusal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.llm.context_limits import ContextLimit, read_context_limit

WORDINGS = {
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9,001 "
    "tokens. Please reduce the length of the messages.": (8192, 9001),
    "This model's maximum context length is 4097 tokens. However, you requested 5000 tokens (4000 "
    "in the messages, 1000 in the completion).": (4097, 4000),
    "This endpoint's maximum context length is 32768 tokens. However, you requested about 40000 "
    "tokens (36000 of text input, 4000 in the output).": (32768, 36000),
    "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context "
    "length is 8192 tokens and your request has 1000 input tokens (8192 > 8192 - 1000).": (
        8192,
        1000,
    ),
    "prompt is too long: 201000 tokens > 200000 maximum": (200000, 201000),
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input "
    "length or `max_tokens` and try again": (200000, 190000),
    "request (3031 tokens) exceeds the available context size (1024 tokens), try increasing it": (
        1024,
        3031,
    ),
    "Prompt contains 33000 tokens and 0 draft tokens, too large for model with 32768 maximum "
    "context length": (32768, 33000),
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048575).": (
        1048575,
        1200000,
    ),
    "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000.": (
        4081,
        5000,
    ),
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 3000 "
    "`inputs` tokens and 2000 `max_new_tokens`": (4096, 3000),
    "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000": (1024, 2000),
    "Please reduce the length of the messages or completion.": (None, None),
    "": (None, None),
}


@pytest.mark.parametrize(("wording", "told"), WORDINGS.items())
def test_wordings(wording: str, told: tuple[int | None, int | None]) -> None:
    assert read_context_limit(wording) == ContextLimit(*told)


@given(st.text(max_size=300) | st.from_regex(r"maximum context length is [\d,]{1,30} tokens"))
def test_any_text_is_read(wording: str) -> None:
    told = read_context_limit(wording)
    assert told.limit is None or told.limit > 0
