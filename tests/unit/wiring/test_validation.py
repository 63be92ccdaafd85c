"""What is begun before the repository is read, and what is said when it fails."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from agent.errors import ConfigurationError, SandboxUnavailable
from agent.settings import Settings, load
from agent.verify.validator import NullValidator
from agent.wiring.validation import Ahead, make_sandbox, open_validator
from sandbox.in_place import ProcessSandbox
from sandbox.types import SandboxError


def _open(settings: Settings, ahead: Ahead) -> Any:
    async def opened() -> Any:
        async with AsyncExitStack() as stack:
            unused = cast("Any", None)
            return await open_validator(
                stack, settings, unused, unused, unused, trial=ahead.sandbox
            )

    return asyncio.run(opened())


def test_the_sandbox_is_the_one_of_the_settings() -> None:
    assert isinstance(Ahead(load({"unsafe_no_sandbox": True})).sandbox(), ProcessSandbox)


def test_a_trial_that_fails_is_said_when_the_validator_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no bubblewrap there
    settings = load({"sandbox": "bwrap"})
    ahead = Ahead(settings)
    with pytest.raises(SandboxError):
        ahead.sandbox()
    with pytest.raises(SandboxUnavailable, match="--no-tests"):
        _open(settings, ahead)


def test_settings_that_contradict_are_said_in_the_words_of_the_options() -> None:
    settings = load({"sandbox": "bwrap", "image": "x:1"})
    with pytest.raises(ConfigurationError, match="--sandbox, --image, --unsafe-no-sandbox: "):
        _open(settings, Ahead(settings))


def test_no_sandbox_is_tried_without_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    settings = load({"tests": False, "sandbox": "bwrap"})
    assert isinstance(_open(settings, Ahead(settings)), NullValidator)


@pytest.mark.parametrize(
    "flags",
    [
        {"sandbox": "container"},
        {"sandbox": "bwrap", "image": "x:1"},
        {"unsafe_no_sandbox": True, "image": "x:1"},
    ],
)
def test_options_that_contradict_are_refused(flags: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"^--sandbox, --image, --unsafe-no-sandbox: "):
        make_sandbox(load(flags))
