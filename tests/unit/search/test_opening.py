"""The Python API, as docs/guide/search.md shows it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.errors import ConfigurationError, RepositoryError
from agent.search import open_pool
from tests.conftest import ROOT
from tests.support.corpora import FILES

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]


def test_the_example_of_the_documentation_runs(
    make_repository: MakeRepository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(make_repository(FILES))
    text = (ROOT / "docs/guide/search.md").read_text("utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (example,) = [example for example in examples if "open_pool" in example]
    exec(compile(example, "docs/guide/search.md", "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    assert "[docs]" in printed
    assert "[code]" in printed


def test_a_pool_by_folder_and_store(make_repository: MakeRepository, tmp_path: Path) -> None:
    root = make_repository(FILES)
    url = f"sqlite://{tmp_path / 'shared.sqlite'}"

    async def use() -> list[int]:
        counts = []
        for _ in range(2):
            async with open_pool(
                root, corpora=["docs"], store=url, cache=tmp_path / "c", data=tmp_path / "d"
            ) as pool:
                (report,) = await pool.fill()
                counts.append(report.embedded)
        return counts

    assert asyncio.run(use()) == [7, 0]


def test_a_cache_folder_of_any_name_is_where_the_store_lies(
    make_repository: MakeRepository, tmp_path: Path
) -> None:
    odd = tmp_path / "50%25 #1?"

    async def use() -> None:
        root = make_repository(FILES)
        async with open_pool(root, corpora=["docs"], cache=odd, data=tmp_path / "d") as pool:
            await pool.fill()

    asyncio.run(use())
    assert (odd / "passages.sqlite").is_file()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"corpora": ["nonsense"]}, ValueError),
        ({"store": "nonsense://x"}, ConfigurationError),
    ],
)
def test_mistakes_are_said(
    make_repository: MakeRepository,
    tmp_path: Path,
    arguments: dict[str, object],
    error: type[Exception],
) -> None:
    root = make_repository(FILES)

    async def use() -> None:
        async with open_pool(root, cache=tmp_path / "c", data=tmp_path / "d", **arguments):  # type: ignore[arg-type]
            pass

    with pytest.raises(error):
        asyncio.run(use())


def test_a_folder_that_is_no_repository(tmp_path: Path) -> None:
    async def use() -> None:
        async with open_pool(tmp_path / "nowhere", cache=tmp_path / "c", data=tmp_path / "d"):
            pass

    with pytest.raises(RepositoryError):
        asyncio.run(use())
