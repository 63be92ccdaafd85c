"""The documentation agrees with the program: generated pages are current, and no link is broken."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATED = runpy.run_path(str(ROOT / "docs/generate.py"))["PAGES"]
_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")


def pages() -> Iterator[Path]:
    """The README, the index, and the pages of each kind."""
    yield ROOT / "README.md"
    yield ROOT / "docs/README.md"
    for kind in ("guide", "reference", "design"):
        yield from sorted((ROOT / "docs" / kind).glob("*.md"))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", sorted(GENERATED))
def test_a_generated_page_is_up_to_date(name: str) -> None:
    written = (ROOT / "docs/reference" / name).read_text("utf-8")
    assert written == GENERATED[name](), "run python docs/generate.py"


@pytest.mark.parametrize("page", list(pages()), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    broken = []
    for target, anchor in _LINK.findall(page.read_text("utf-8")):
        if "://" in target:
            continue
        other = (page.parent / target).resolve() if target else page
        if not other.exists() or (anchor and anchor not in anchors(other)):
            broken.append(f"{target}#{anchor}")
    assert not broken
