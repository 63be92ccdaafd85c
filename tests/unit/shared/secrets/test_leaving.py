"""Texts that leave the program other than in a prompt."""

from __future__ import annotations

import pytest

from agent.retrieval.ranking.lexical import document_text
from agent.types import Chunk, ChunkKind


@pytest.mark.parametrize(
    ("path", "text"),
    [("a.py", "a.py\nf\nx = 1"), (".env", ".env\nf"), ("certs/server.pem", "certs/server.pem\nf")],
)
def test_what_is_embedded_of_a_file_of_secrets_is_its_path(path: str, text: str) -> None:
    chunk = Chunk(path, 1, 1, "f", ChunkKind.FUNCTION, "x = 1", "0" * 40, "python")
    assert document_text(chunk) == text
