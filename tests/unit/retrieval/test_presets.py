from __future__ import annotations

import pytest

from agent.errors import ConfigurationError
from agent.retrieval.options import RetrievalOptions
from agent.retrieval.presets import PRESETS, preset


def test_names() -> None:
    assert set(PRESETS) == {"default", "lexical", "original"}
    assert preset("default") == RetrievalOptions()
    assert not preset("lexical").embedding


def test_the_original_is_the_original() -> None:
    original = preset("original")
    assert (original.prefilter, original.filename_bonus, original.first_stage) == (
        50,
        0.2,
        "overlap",
    )


def test_unknown_name() -> None:
    with pytest.raises(ConfigurationError, match="known: default, lexical, original"):
        preset("best")


@pytest.mark.parametrize(
    "wrong", [{"prefilter": 0}, {"max_results": 0}, {"file_weight": -1.0}, {"cosine_weight": 1e9}]
)
def test_numbers_that_cannot_be_meant(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        RetrievalOptions(**wrong)  # type: ignore[arg-type]
