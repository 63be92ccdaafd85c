"""What is said when the sandbox of the settings cannot be used: options at fault, and others."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest

from agent.errors import ConfigurationError, SandboxUnavailable
from agent.settings import load
from agent.wiring.validation import make_sandbox, open_validator


@pytest.mark.parametrize(
    ("flags", "at_fault"),
    [
        ({"sandbox": "container"}, "--sandbox container: "),
        ({"sandbox": "bwrap", "image": "x:1"}, "--sandbox bwrap, --image: "),
        ({"unsafe_no_sandbox": True, "image": "x:1"}, "--image, --unsafe-no-sandbox: "),
    ],
)
def test_only_the_options_at_fault_are_named(flags: dict[str, Any], at_fault: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        make_sandbox(load(flags))
    assert str(raised.value).startswith(at_fault)


def test_who_names_an_image_is_not_told_to_name_one() -> None:
    async def opened() -> None:
        async with AsyncExitStack() as stack:
            unused = cast(Any, None)
            settings = load({"image": "Bad Name!!"})
            await open_validator(stack, settings, unused, unused, unused)

    with pytest.raises(SandboxUnavailable) as raised:
        asyncio.run(opened())
    said = str(raised.value)
    assert "--image" not in said
    assert "--sandbox landlock or --sandbox bwrap" in said
