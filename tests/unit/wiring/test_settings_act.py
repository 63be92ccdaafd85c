"""Every setting changes something in each retrieval preset in which it claims to act.

Settings of retrieval change the ranking, the context or the requests of a real loopback server.
Those of the call, the limits and the checks change the parts that `open_services` composes, or the
pipeline's options.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from agent.repository import take_snapshot
from agent.retrieval.context import pack
from agent.retrieval.ranking import PRESETS, preset
from agent.run.record import Ledger
from agent.settings import Settings
from agent.types import Problem
from agent.wiring import (
    make_counter,
    make_sandbox,
    open_retriever,
    open_services,
    packing_options,
    solve_options,
)
from agent.wiring.model import plan_in_words
from tests.conftest import run_git
from tests.support.ignored_events import ignore
from tests.support.scripted_provider import ScriptedProvider

PROBLEM = Problem("Timeout ignored when following redirects", "See client.py; the jar is lost.")
FILES = {
    "pkg/client.py": (
        "import time\n\n\nclass Client:\n    timeout = 5\n\n    def get(self, url):\n"
        "        return self.send(url, self.timeout)\n\n"
        "    def send_following_redirects(self, r):\n"
        "        while redirect := self.next_redirect(r):\n            r = redirect\n"
        "        return r\n"
    ),
    "pkg/cookies.py": "def set_cookie(jar, name):\n    jar[name] = name\n",
    "pkg/redirects.py": "def following(timeout):\n    # timeout when redirects are ignored\n"
    "    return timeout\n" + "".join(f"\n\ndef part_{n}(x):\n    return x\n" for n in range(40)),
    "README.md": "# Redirects\n\nA timeout is ignored by `set_cookie` when following redirects.\n",
}
Value = Callable[["World"], Any]


@dataclasses.dataclass
class World:
    """A repository, the servers beside it, and the settings that each observation starts from."""

    root: Path
    cache: Path
    provider: ScriptedProvider
    other: ScriptedProvider
    known: dict[str, Any] = dataclasses.field(default_factory=dict)

    def once(self, observe: Callable[[World, Settings], Any], settings: Settings) -> Any:
        """Return what is observed with settings that many tests start from."""
        key = f"{observe.__name__} {settings!r}"
        if key not in self.known:
            self.known[key] = observe(self, settings)
        return self.known[key]

    def settings(self, **values: Any) -> Settings:
        return Settings.model_validate(
            {
                "base_url": self.provider.base_url,
                "model": "scripted",
                "embed_model": "scripted",
                "cache_dir": self.cache,
                **values,
            }
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    root = folder / "target"
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "base")):
        run_git(root, *arguments)
    replies = ["cookie, jar"]
    with ScriptedProvider(replies) as one, ScriptedProvider(replies) as two:
        yield World(root, folder / "cache", one, two)


# --------------------------------------------------------------------------------------- retrieval

RETRIEVAL: Mapping[str, Value] = {
    "embed": lambda _: "off",
    "embed_base_url": lambda world: world.other.base_url,
    "embed_api_key": lambda _: SecretStr("another-key"),
    "embed_model": lambda _: "larger",
    "prefilter": lambda _: 2,
    "filename_bonus": lambda _: 3.0,
    "context_tokens": lambda _: 250,
    "context_reserve": lambda _: 0.97,
    "max_chunks": lambda _: 1,
}


def retrieved(world: World, settings: Settings) -> Any:
    """The order with its reasons, the context, and what the servers were asked."""
    world.provider.requests.clear()
    world.other.requests.clear()
    for file in world.cache.glob("vectors.sqlite*"):
        file.unlink()

    async def go() -> Any:
        async with open_retriever(settings, ignore) as retriever:
            return await retriever.rank(PROBLEM, snapshot)

    snapshot = take_snapshot(world.root)
    ranking = asyncio.run(go())
    counter = make_counter(None)
    bundle = pack(PROBLEM, ranking, snapshot, counter, packing_options(settings))
    asked = [
        (
            number,
            r.target,
            r.headers.get("authorization"),
            r.json.get("model"),
            len(r.json.get("input", ())),
        )
        for number, server in enumerate((world.provider, world.other))
        for r in server.requests
    ]
    order = [(one.chunk.id, one.reasons) for one in ranking.chunks]
    return order, bundle.text, bundle.reserve, sorted(asked, key=repr)


@pytest.mark.parametrize("name", RETRIEVAL)
def test_a_setting_of_retrieval_acts(world: World, name: str) -> None:
    plain = world.once(retrieved, world.settings())
    assert plain != retrieved(world, world.settings(**{name: RETRIEVAL[name](world)}))


def test_presets_differ() -> None:
    assert len({repr(preset(name)) for name in PRESETS}) == len(PRESETS)


# ------------------------------------------------------------------------- the call and the checks

COMPOSED: Mapping[str, Value] = {
    "base_url": lambda world: world.other.base_url,
    "api_key": lambda _: SecretStr("another-key"),
    "model": lambda _: "larger",
    "protocol": lambda _: "anthropic",
    "escalate_model": lambda _: "stronger",
    "request_timeout": lambda _: 20.0,
    "temperature": lambda _: 0.7,
    "reasoning_effort": lambda _: "low",
    "max_output_tokens": lambda _: 100,
    "prices": lambda _: "9,9",
    "timeout": lambda _: 77.0,
    "max_cost": lambda _: 0.5,
    "max_tokens": lambda _: 1234,
    "max_calls": lambda _: 2,
    "repairs": lambda _: 3,
    "locate": lambda _: "never",
    "side_model": lambda _: "larger",
    "outdated_tests": lambda _: "refuse",
    "check": lambda w: ("ruff format {files}",),
    "max_steps": lambda _: 3,
    "evidence": lambda _: "independent",
    "allow": lambda _: ("tests/x.py",),
    "include_test": lambda _: True,
    "tests": lambda _: False,
    "test_cmd": lambda _: "pytest tests/unit",
    "setup_cmd": lambda _: "make ready",
    "setup_network": lambda _: True,
    "test_timeout": lambda _: 7.0,
    "python": lambda _: Path("/usr/bin/python3"),
    "sandbox": lambda _: "landlock",
    "unsafe_no_sandbox": lambda _: True,
}
ALSO: Mapping[str, Mapping[str, Any]] = {
    "protocol": {"embed": "off"},
    "setup_network": {"setup_cmd": "make ready"},
}


def composed(world: World, settings: Settings) -> Any:
    """The values in the parts of a run, and in the options of the pipeline."""
    snapshot, untried = take_snapshot(world.root), functools.partial(make_sandbox, settings)

    async def go() -> Any:
        async with AsyncExitStack() as stack:
            services = await stack.enter_async_context(
                open_services(settings, PROBLEM, snapshot, ignore, Ledger(), trial=untried)
            )
            budget = services.chat._inner._inner.budget  # type: ignore[attr-defined]
            words = plan_in_words(settings, PROBLEM, [budget])
            return flat(services), flat(solve_options(settings)), words

    return asyncio.run(go())


def flat(value: Any, seen: frozenset[int] = frozenset()) -> Any:
    """The plain values inside an object, however deep."""
    if value is None or isinstance(value, bool | int | float | str | Path):
        return value
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if id(value) in seen or (callable(value) and not hasattr(value, "__dict__")):
        return type(value).__name__
    inner = seen | {id(value)}
    if isinstance(value, Mapping):
        return {repr(key): flat(one, inner) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [flat(one, inner) for one in value]
    module = type(value).__module__
    if not module.startswith(("agent", "sandbox")) or "napshot" in type(value).__name__:
        return type(value).__name__
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    names = {*slots, *getattr(value, "__dict__", {})}
    return {
        "": type(value).__name__,
        **{n: flat(getattr(value, n, None), inner) for n in sorted(names)},
    }


def test_the_observations_are_stable(world: World) -> None:
    for observe in (retrieved, composed):
        settings = world.settings()
        assert observe(world, settings) == observe(world, settings)


@pytest.mark.parametrize("name", COMPOSED)
def test_a_setting_of_the_run_acts(world: World, name: str) -> None:
    base = ALSO.get(name, {})
    plain = world.once(composed, world.settings(**base))
    assert composed(world, world.settings(**{**base, name: COMPOSED[name](world)})) != plain


# Settings that only end-to-end tests of single commands can show to act.
OF_COMMANDS = {
    "preset", "allow_empty_context", "corpora", "store", "precomputed", "history_exclude", "plan",
    "max_file_mb",
    "environments", "accept_unverified", "image", "keep", "cache_dir", "trust_repository",
}  # fmt: skip


def test_every_setting_is_held_by_a_test() -> None:
    assert {*RETRIEVAL, *COMPOSED, *OF_COMMANDS} == set(Settings.model_fields)
