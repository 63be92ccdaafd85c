"""Real clusters; `PATCHSHOT_REQUIRE_RAY=1` makes their absence a failure."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.support.batch_command import Bench
from tests.support.behaviours import Step
from tests.support.ray_cluster import RayCluster

MakeBench = Callable[[Sequence[Step]], Bench]


@pytest.fixture(scope="session")
def ray_is_here() -> None:
    if importlib.util.find_spec("ray") is None:
        if os.environ.get("PATCHSHOT_REQUIRE_RAY") == "1":
            pytest.fail("PATCHSHOT_REQUIRE_RAY=1, and the extra `ray` is not installed")
        pytest.skip("the extra `ray` is not installed")


@pytest.fixture(scope="module")
def cluster(ray_is_here: None) -> Iterator[RayCluster]:
    """Two nodes that see the same file system; all of them outlive every test."""
    with RayCluster() as started:
        yield started
