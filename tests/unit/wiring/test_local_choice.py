"""When the model is one on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.settings import Settings
from agent.wiring.model import is_local

_FILE = Path("/models/any.gguf")


@pytest.mark.parametrize(
    ("given", "local"),
    [
        ({}, False),
        ({"model": "gpt-5.4"}, False),
        ({"model": "local:smollm2"}, True),
        ({"model": "local:/models/any.gguf"}, True),
        ({"base_url": "local:", "model": "smollm2"}, True),
        ({"local_model": _FILE}, True),
        # A server that was named is asked: the file alone does not choose against it.
        ({"local_model": _FILE, "model": "gpt-5.4"}, False),
        ({"local_model": _FILE, "base_url": "http://127.0.0.1:1/v1"}, False),
        ({"local_model": _FILE, "model": "local:anything"}, True),
    ],
)
def test_what_chooses_a_local_model(
    given: dict[str, Any], local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MODEL", "BASE_URL", "LOCAL_MODEL"):
        monkeypatch.delenv(f"PATCHSHOT_{name}", raising=False)
    assert is_local(Settings(**given)) is local
