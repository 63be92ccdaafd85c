"""Every setting changes something in each retrieval preset in which it claims to act.

Settings of retrieval change the ranking, the context or the requests of a real loopback server.
Those of the call, the limits and the checks change the parts that `open_services` composes, or the
pipeline's options. The rest belong to single commands: a test of the command is named here.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from agent.repository import take_snapshot
from agent.retrieval.context import pack
from agent.retrieval.ranking import preset
from agent.run.record import Ledger
from agent.settings import PRESETS, Settings, option_of
from agent.types import Problem
from agent.wiring import open_retriever, open_services, packing_options, solve_options
from agent.wiring.model import make_counter
from agent.wiring.planned_calls import most_in_words
from tests.conftest import ROOT, run_git
from tests.support.behaviours import Good
from tests.support.ignored_events import ignore
from tests.support.scripted_provider import Recorded, ScriptedProvider

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


class Overlapping(ScriptedProvider):
    """Counts how many requests are open at once; `patience`: seconds that one waits for more."""

    def __init__(self) -> None:
        super().__init__([Good("cookie, jar")])
        self.open = self.most = 0
        self.patience = 0.0

    def route(self, request: Recorded) -> Any:
        self.open += 1
        self.most = max(self.most, self.open)
        end = time.monotonic() + self.patience
        while self.most < 2 and time.monotonic() < end:
            self.wait(0.01)
        self.open -= 1
        return super().route(request)


@dataclasses.dataclass
class World:
    """A repository, the servers beside it, and the settings that each observation starts from."""

    root: Path
    cache: Path
    provider: Overlapping
    other: Overlapping
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
                "data_dir": self.cache,
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
    with Overlapping() as one, Overlapping() as two:
        yield World(root, folder / "cache", one, two)


# --------------------------------------------------------------------------------------- retrieval

RETRIEVAL: Mapping[str, Value] = {
    "embed": lambda _: "off",
    "embed_base_url": lambda world: world.other.base_url,
    "embed_api_key": lambda _: SecretStr("another-key"),
    "embed_model": lambda _: "larger",
    "embed_concurrency": lambda _: 1,
    "without": lambda _: ("lexical",),
    "prefilter": lambda _: 2,
    "filename_bonus": lambda _: 3.0,
    "context_tokens": lambda _: 250,
    "context_reserve": lambda _: 0.97,
    "max_chunks": lambda _: 1,
    "corpora": lambda _: ("docs",),
    "max_file_mb": lambda _: 0.0001,
    "context_floor": lambda _: 0.9,
    "expand": lambda _: "llm",
}


def overlap(world: World, settings: Settings) -> bool:
    """Whether two requests to the embedding model are under way at once."""
    world.provider.patience = 0.5
    try:
        retrieved(world, settings)
    finally:
        world.provider.patience = 0.0
    return world.provider.most > 1


def retrieved(world: World, settings: Settings) -> Any:
    """The order with its reasons, the context, and what the servers were asked."""
    world.provider.requests.clear()
    world.other.requests.clear()
    world.provider.most = 0
    for file in world.cache.glob("vectors.sqlite*"):
        file.unlink()

    async def go() -> Any:
        async with open_retriever(settings, ignore, workers=1) as retriever:
            return await retriever.rank(PROBLEM, snapshot)

    snapshot = take_snapshot(world.root, max_file_bytes=settings.max_file_bytes)
    ranking = asyncio.run(go())
    counter = make_counter(None)
    bundle = pack(PROBLEM, ranking, snapshot, counter, packing_options(settings))
    asked = [
        (
            number,
            r.path,
            r.headers.get("authorization"),
            r.body.get("model"),
            len(r.body.get("input", ())),
        )
        for number, server in enumerate((world.provider, world.other))
        for r in server.requests
    ]
    order = [(one.chunk.id, one.reasons) for one in ranking.chunks]
    return order, bundle.text, bundle.reserve, sorted(asked, key=repr)


@pytest.mark.parametrize("name", RETRIEVAL)
@pytest.mark.parametrize("chosen", PRESETS)
def test_a_setting_of_retrieval_acts_in_its_presets_only(
    world: World, chosen: str, name: str
) -> None:
    option = option_of(name)
    presets = option.presets if option else option_of(name.replace("api_key", "base_url")).presets  # type: ignore[union-attr]
    observe = overlap if name == "embed_concurrency" else retrieved
    plain = world.once(observe, world.settings(preset=chosen))
    values = {name: RETRIEVAL[name](world)}
    changed = observe(world, world.settings(preset=chosen, **values))
    assert (plain != changed) == (chosen in presets)


def test_presets_differ() -> None:
    assert len({repr(preset(name)) for name in PRESETS}) == len(PRESETS)


# ------------------------------------------------------------------------- the call and the checks

COMPOSED: Mapping[str, Value] = {
    "base_url": lambda world: world.other.base_url,
    "api_key": lambda _: SecretStr("another-key"),
    "model": lambda _: "larger",
    "protocol": lambda _: "anthropic",
    "escalate_model": lambda _: "stronger",
    "temperature": lambda _: 0.7,
    "reasoning_effort": lambda _: "low",
    "max_output_tokens": lambda _: 100,
    "request_timeout": lambda _: 7.0,
    "prices": lambda _: "9,9",
    "timeout": lambda _: 77.0,
    "max_cost": lambda _: 0.5,
    "max_tokens": lambda _: 1234,
    "max_calls": lambda _: 2,
    "repairs": lambda _: 3,
    "another_test": lambda _: False,
    "samples": lambda _: 3,
    "locate": lambda _: "never",
    "side_model": lambda _: "larger",
    "outdated_tests": lambda _: "refuse",
    "iterative": lambda _: False,
    "max_steps": lambda _: 3,
    "widening": lambda _: "plan",
    "wider_tokens": lambda _: 7_777,
    "plan_calls": lambda _: 1,
    "find_action": lambda _: False,
    "allow": lambda _: ("tests/x.py",),
    "no_repair": lambda _: ("all",),
    "include_test": lambda _: True,
    "tests": lambda _: False,
    "test_cmd": lambda _: "pytest tests/unit",
    "setup_cmd": lambda _: "make ready",
    "setup_network": lambda _: True,
    "test_timeout": lambda _: 7.0,
    "max_test_files": lambda _: 3,
    "python": lambda _: Path("/usr/bin/python3"),
    "fail_to_pass": lambda _: ("tests/x.py::test_y",),
    "pass_to_pass": lambda _: ("tests/x.py::test_y",),
    "run_cache": lambda _: False,
    "sandbox": lambda _: "landlock",
    "unsafe_no_sandbox": lambda _: True,
}
ALSO: Mapping[str, Mapping[str, Any]] = {
    "protocol": {"embed": "off"},
    "plan_calls": {"widening": "plan"},
    "setup_network": {"setup_cmd": "make ready"},
}


def composed(world: World, settings: Settings) -> Any:
    """The values in the parts of a run, and in the options of the pipeline."""
    snapshot = take_snapshot(world.root)

    async def go() -> Any:
        async with AsyncExitStack() as stack:
            services = await stack.enter_async_context(
                open_services(settings, PROBLEM, snapshot, ignore, Ledger(), sandbox_tried=True)
            )
            budget = services.chat._inner._inner.budget  # type: ignore[attr-defined]
            words = most_in_words(settings, budget)
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
def test_a_setting_of_the_run_acts_in_every_preset(world: World, name: str) -> None:
    option = option_of(name)
    assert option is None or option.presets == PRESETS
    for chosen in PRESETS:
        base = {"preset": chosen, **ALSO.get(name, {})}
        plain = world.once(composed, world.settings(**base))
        assert composed(world, world.settings(**{**base, name: COMPOSED[name](world)})) != plain


# ------------------------------------------------------------------------------- single commands

TESTED_BY: Mapping[str, tuple[str, str]] = {
    "locate": ("tests/e2e/test_locating.py", "--locate"),
    "side_model": ("tests/e2e/test_locating.py", "--side-model"),
    "preset": ("tests/unit/wiring/test_settings_act.py", "test_presets_differ"),
    "allow_empty_context": ("tests/e2e/test_ranking_settings.py", "--allow-empty-context"),
    "store": ("tests/e2e/test_corpora.py", "--store"),
    "store_fallback": ("tests/unit/cli/commands/test_commands.py", "store_fallback"),
    "precomputed": ("tests/e2e/test_background.py", "--precomputed"),
    "corpus_weights": ("tests/e2e/test_corpora.py", "--corpus-weights"),
    "history_exclude": ("tests/e2e/test_corpora.py", "--history-exclude"),
    "history_max_hunks": ("tests/e2e/test_corpora.py", "--history-max-hunks"),
    "history_min_lines": ("tests/e2e/test_corpora.py", "--history-min-lines"),
    "intents_per_symbol": ("tests/e2e/test_corpora.py", "--intents-per-symbol"),
    "intents_workers": ("tests/e2e/test_corpora.py", "--intents-workers"),
    "plan": ("tests/e2e/test_background.py", "--plan"),
    "plan_beam": ("tests/e2e/test_background.py", "--plan-beam"),
    "remember": ("tests/e2e/test_corpora.py", "--remember"),
    "path": ("tests/e2e/test_monorepo.py", "--path"),
    "environments": ("tests/e2e/test_eval_patches.py", "--environments"),
    "project": ("tests/unit/verify/environments/test_preparing.py", "project"),
    "accept_unverified": ("tests/e2e/test_corpora.py", "--accept-unverified"),
    "tests_from": ("tests/e2e/test_commands.py", "--tests-from"),
    "image": ("tests/unit/wiring/test_validation.py", "image"),
    "keep": ("tests/e2e/test_kept_runs.py", "--no-keep"),
    "log_file": ("tests/e2e/test_model_calls.py", "--log-file"),
    "cache_dir": ("tests/e2e/test_bad_input.py", "PATCHSHOT_CACHE_DIR"),
    "data_dir": ("tests/e2e/test_corpora.py", "PATCHSHOT_DATA_DIR"),
}


def test_every_setting_is_held_by_a_test() -> None:
    held = {*RETRIEVAL, *COMPOSED, *TESTED_BY}
    assert set(Settings.model_fields) - held == set(), "add these to a table of this module"
    assert held == set(Settings.model_fields)


@pytest.mark.parametrize("name", TESTED_BY)
def test_a_setting_of_one_command_is_named_by_a_test_of_it(name: str) -> None:
    file, word = TESTED_BY[name]
    assert word in (ROOT / file).read_text(), f"{file}: {word}"
