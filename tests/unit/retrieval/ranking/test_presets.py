from __future__ import annotations

from dataclasses import replace

import pytest

from agent.errors import ConfigurationError
from agent.retrieval.ranking.features import GROUPS
from agent.retrieval.ranking.options import (
    FROM_CORPORA,
    PRESETS,
    SWITCHES,
    RetrievalOptions,
    preset,
    split_name,
)


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
    with pytest.raises(ConfigurationError, match="known: default, lexical, original, and each"):
        preset("best")
    with pytest.raises(ConfigurationError, match=r"leaves X out: churn, .*ranker.*traceback"):
        preset("lexical-nothing")
    with pytest.raises(ConfigurationError):
        preset("lexical-")


@pytest.mark.parametrize("switch", SWITCHES)
def test_every_preset_comes_without_each_part(switch: str) -> None:
    assert preset(f"lexical-{switch}") == replace(preset("lexical"), without=frozenset({switch}))
    assert split_name(f"original-{switch}") == ("original", switch)


def test_switches_are_the_groups_and_the_ranker() -> None:
    assert set(SWITCHES) == {*GROUPS, *FROM_CORPORA, "ranker"}
    with pytest.raises(ConfigurationError, match=r"features 'words'.*known: churn"):
        RetrievalOptions(without=frozenset({"words"}))


def test_what_the_switches_mean_for_models_and_history() -> None:
    def uses(options: RetrievalOptions) -> tuple[bool, bool, bool]:
        return options.uses_static, options.uses_ranker, options.uses_history

    assert uses(RetrievalOptions()) == (True, True, True)
    assert uses(preset("lexical-static")) == (False, True, True)
    assert uses(preset("lexical-ranker")) == (True, False, True)
    assert uses(preset("lexical-history")) == (True, True, True)  # the churn is asked for
    no_history = frozenset({"history", "churn", "cochange"})
    assert uses(RetrievalOptions(without=no_history)) == (True, True, False)
    assert uses(RetrievalOptions(static=False, learned=False, evidence=False)) == (False,) * 3
    assert uses(preset("original")) == (False, False, False)


@pytest.mark.parametrize(
    "wrong", [{"prefilter": 0}, {"max_results": 0}, {"file_weight": -1.0}, {"cosine_weight": 1e9}]
)
def test_numbers_that_cannot_be_meant(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        RetrievalOptions(**wrong)  # type: ignore[arg-type]
