"""Corpora beside the code as a user calls them: index, search, kill, search again."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import run_git
from tests.support.agent_process import AGENT, agent_environment
from tests.support.behaviours import Computed, Good
from tests.support.corpora import FILES
from tests.support.scripted_provider import ScriptedProvider


def many_functions(make_repository: MakeRepository) -> Path:
    files = {
        f"pkg/m{m}.py": "".join(
            f'def handle_{m}_{n}(value, key):\n    """Handles case {m} {n} of the table."""\n'
            f"    return {n}\n\n\n"
            for n in range(60)
        )
        for m in range(40)
    }
    return make_repository(files)


pytestmark = [pytest.mark.e2e, pytest.mark.slow]

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]
ALL = "code,docs,intent,history"


class User:
    """A person with a home of their own who calls the command."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir()
        self.store = f"sqlite://{home / 'team.sqlite'}"

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        data = str(self.home / "data")
        return subprocess.Popen(
            [*AGENT, *arguments],
            cwd=self.home,
            env=agent_environment(self.home, XDG_DATA_HOME=data, **variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        with self.start(*arguments, **variables) as process:
            out, err = process.communicate(timeout=110)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def ok(self, *arguments: str, **variables: str) -> Any:
        done = self.run(*arguments, "--json", **variables)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def index(self, repository: Path, corpora: str = ALL, *more: str, **variables: str) -> Any:
        return self.ok(
            "index", "--repo", str(repository), "--corpus", corpora, "--store", self.store, *more,
            **variables,
        )  # fmt: skip

    def search(self, repository: Path, query: str, corpora: str = ALL, *more: str) -> Any:
        return self.ok(
            "search", query, "--repo", str(repository), "--corpus", corpora, "--store", self.store,
            *more,
        )  # fmt: skip


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path / "home")


@pytest.fixture
def repository(make_repository: MakeRepository) -> Path:
    root = make_repository(FILES)
    cart = root / "shop" / "cart.py"
    cart.write_text(
        cart.read_text()
        + "\n    def discount(self, share):\n        before = self.total([])\n"
        + "        after = before * (1 - share)\n        return round(after, 2)\n"
    )
    run_git(root, "commit", "-q", "-a", "-m", "Give a discount on the whole cart")
    return root


def embedded(found: Any) -> dict[str, int]:
    return {name: corpus["embedded"] for name, corpus in found["corpora"].items()}


def test_index_then_search_then_nothing_to_embed(user: User, repository: Path) -> None:
    first = user.index(repository)
    assert first["files"] > 0
    assert first["store"] == user.store
    assert all(corpus["complete"] for corpus in first["corpora"].values())
    assert all(count > 0 for count in embedded(first).values())
    found = user.search(repository, "cookies that are out of date")
    assert {"code", "docs", "intent"} <= {hit["corpus"] for hit in found["results"]}
    assert found["results"][0]["symbol"] == "CookieJar.expire"
    assert set(found["searched"]) == set(ALL.split(","))
    past = user.search(repository, "discount on the whole cart", "history")
    assert past["results"][0]["path"] == "shop/cart.py"
    assert set(embedded(user.index(repository)).values()) == {0}
    table = user.run(
        "search", "cookies out of date", "--repo", str(repository), "--corpus", "docs", "--explain"
    )
    assert "[docs]     shop/cookies.py:7-12 CookieJar.expire" in table.stdout
    assert "words" in table.stdout


@pytest.mark.slow
def test_an_accepted_patch_is_remembered_where_asked(user: User, repository: Path) -> None:
    edit = {"path": "shop/cart.py", "search": "return sum(prices)", "replace": "return 0"}
    issue = user.home / "issue.md"
    issue.write_text("# Pelicans cost too much\n\nThe total of pelicans is wrong.\n")
    arguments = ("solve", "--problem", str(issue), "--repo", str(repository), "--no-tests")
    remembered = user.home / "data" / "patchshot" / "memory"
    with ScriptedProvider([Good(json.dumps({"edits": [edit]}))]) as provider:
        model = {"PATCHSHOT_BASE_URL": provider.base_url, "PATCHSHOT_MODEL": provider.model}
        plain = user.run(*arguments, "--accept-unverified", **model)
        assert plain.returncode == 0, plain.stderr
        assert not remembered.exists()
        done = user.run("accept", **model)
        assert done.returncode == 0, done.stderr
    found = user.search(repository, "pelicans cost", "memory")
    assert [hit["title"] for hit in found["results"]] == ["Pelicans cost too much"]
    assert "+        return 0" in found["results"][0]["text"]
    assert (
        "forgot 1 patch of this" in user.run("index", "--repo", str(repository), "--forget").stdout
    )
    again = user.search(repository, "pelicans cost", "memory")
    assert again["results"] == []


SHIPPING = "".join(f"    parcel.weigh({n})\n" for n in range(6))


@pytest.fixture
def merged(make_repository: MakeRepository) -> Path:
    """A pull request that was merged, and a later fix that the merge does not know."""
    root = make_repository({**FILES, "generated/wire.py": "x = 1\n"})
    run_git(root, "remote", "add", "origin", "git@forge.example.org:owner/shop.git")
    run_git(root, "checkout", "-q", "-b", "parcels")
    (root / "shop" / "parcels.py").write_text(f"def ship_parcel(parcel):\n{SHIPPING}")
    (root / "generated" / "wire.py").write_text(f"def ship_wire(parcel):\n{SHIPPING}")
    run_git(root, "add", "-A")
    run_git(root, "commit", "-q", "-m", "Weigh the parcel")
    run_git(root, "checkout", "-q", "-")
    title = ("-m", "Merge pull request #7 from owner/parcels", "-m", "Ship parcels")
    run_git(root, "merge", "-q", "--no-ff", *title, "parcels")
    return root


def test_a_later_commit_is_never_shown(user: User, merged: Path) -> None:
    base = run_git(merged, "rev-parse", "HEAD").strip()
    (merged / "shop" / "cart.py").write_text(
        FILES["shop/cart.py"] + "".join(f"\n    secret_repair_{n} = {n}\n" for n in range(6))
    )
    run_git(merged, "commit", "-q", "-a", "-m", "The secret repair of totals")
    run_git(merged, "tag", "later")
    user.index(merged, "history")  # the store and the caches now hold it
    now = user.search(merged, "secret repair of totals", "history")["results"]
    assert any("secret_repair" in hit["text"] for hit in now)
    then = user.search(merged, "secret repair of totals", "history", "--commit", base)["results"]
    assert not any("secret" in json.dumps(hit) for hit in then)


def test_symbols_and_intents_of_a_model_are_written(
    user: User, repository: Path, tmp_path: Path
) -> None:
    def reply(request: Any) -> str:
        name = request.prompt.split('symbol path="')[1].split('name="')[1].split('"')[0]
        assert "A small shop for the tests of retrieval." in request.prompt
        assert "exactly 5 short sentences" in request.prompt
        return json.dumps({"intents": [f"I want the pelicans of {name} no {n}" for n in range(5)]})

    file = tmp_path / "out.jsonl"
    with ScriptedProvider([Computed(reply)]) as provider:
        user.index(
            repository, "intent", "--intents", "llm",
            "--symbols", str(file),
            PATCHSHOT_SIDE_MODEL="small-and-cheap", PATCHSHOT_BASE_URL=provider.base_url,
            PATCHSHOT_MODEL=provider.model,
        )  # fmt: skip
        assert provider.chats
        assert {chat.body["model"] for chat in provider.chats} == {"small-and-cheap"}
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    (sent,) = [line for line in lines if line["symbol"] == "sendOrder"]
    assert sent["intents"] == [f"I want the pelicans of sendOrder no {n}" for n in range(5)]
    assert (sent["path"], sent["model"]) == ("web/api.js", "small-and-cheap")


@pytest.mark.slow
def test_a_killed_index_is_whole_after_the_next(
    user: User, make_repository: MakeRepository
) -> None:
    root = many_functions(make_repository)
    arguments = ("index", "--repo", str(root), "--corpus", "intent", "--store", user.store)
    with user.start(*arguments) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("vectors: "):
                process.send_signal(signal.SIGKILL)
                break
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    after = user.index(root, "intent")["corpora"]["intent"]
    assert after["complete"]
    assert after["known"] > 0  # what the killed one wrote was not lost
    assert after["embedded"] > 0  # and it was not done
    last = user.index(root, "intent")["corpora"]["intent"]
    assert (last["embedded"], last["known"]) == (0, after["known"] + after["embedded"])
    assert user.search(root, "case 7 9 of the table", "intent")["results"]


def test_the_cost_of_intents_is_bounded_before_the_call(user: User, repository: Path) -> None:
    with ScriptedProvider([Good("1. I want to see it\n")]) as provider:
        done = user.run(
            "index", "--repo", str(repository), "--corpus", "intent", "--intents", "llm",
            "--max-cost", "0.0001", PATCHSHOT_BASE_URL=provider.base_url,
            PATCHSHOT_MODEL=provider.model, PATCHSHOT_PRICES="1,10",
        )  # fmt: skip
        assert len(provider.chats) == 0
    assert done.returncode == 8
    assert "PATCHSHOT_MAX_COST" in done.stderr
    assert "[intent]" in done.stdout  # by templates, all the same


def test_a_model_s_keywords_translate_a_question(user: User, repository: Path) -> None:
    def reply(request: Any) -> str:
        assert "translate" in request.prompt
        return json.dumps({"keywords": [["drop", "expired", "cookies"]]})

    with ScriptedProvider([Computed(reply)]) as provider:
        model = {"PATCHSHOT_BASE_URL": provider.base_url, "PATCHSHOT_MODEL": provider.model}
        asked = ("search", "¿dónde se eliminan las galletas vencidas?", "--expand", "llm")
        found = user.ok(*asked, "--repo", str(repository), **model)
        assert found["results"][0]["symbol"] == "CookieJar.expire"
        assert len(provider.chats) == 1


def test_one_threshold_serves_code_and_corpora(user: User, repository: Path) -> None:
    query = "drop cookies that are out of date"
    code = user.ok("search", query, "--repo", str(repository), "--at-least", "0.3")["results"]
    both = user.search(repository, query, "code,docs", "--at-least", "0.3")["results"]
    assert code
    assert both
    for hit in (*code, *both):
        assert 0.3 <= hit["relevance"] <= 1.0
    assert user.ok("search", query, "--repo", str(repository), "--at-least", "1")["results"] == []
    assert len(user.ok("search", query, "--repo", str(repository))["results"]) > len(code)


def test_symbols_without_a_model_have_intents_from_templates(
    user: User, repository: Path, tmp_path: Path
) -> None:
    file = tmp_path / "out.jsonl"
    user.index(repository, "intent", "--symbols", str(file))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert {line["model"] for line in lines} == {""}
    assert all(line["intents"] for line in lines)
    assert "CookieJar.expire" in {line["symbol"] for line in lines}
