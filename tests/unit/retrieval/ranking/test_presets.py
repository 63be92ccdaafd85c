from __future__ import annotations

import pytest

from agent.errors import ConfigurationError
from agent.retrieval.ranking import PRESETS, RetrievalOptions, preset


def test_names() -> None:
    assert set(PRESETS) == {"default", "lexical", "original"}
    assert preset("default") == RetrievalOptions()
    assert not preset("lexical").embedding
    original = preset("original")
    assert (original.prefilter, original.filename_bonus, original.original) == (50, 0.2, True)
    with pytest.raises(ConfigurationError, match="known: default, lexical, original"):
        preset("best")


@pytest.mark.parametrize("wrong", [{"prefilter": 0}, {"max_results": 0}, {"filename_bonus": -1.0}])
def test_numbers_out_of_range(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        RetrievalOptions(**wrong)  # type: ignore[arg-type]
