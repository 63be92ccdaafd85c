"""A real browser for the pages of `agent report`: the system's Chromium, without a network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """Its path. Skips where there is none; fails where PATCHSHOT_REQUIRE_CHROMIUM is set."""
    for name in _NAMES:
        if path := shutil.which(name):
            return path
    problem = "no chromium on this machine"
    if os.environ.get("PATCHSHOT_REQUIRE_CHROMIUM") == "1":
        pytest.fail(problem)
    pytest.skip(problem)


@contextmanager
def open_browser() -> Iterator[Browser]:
    """A headless browser."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


@dataclass
class Watch:
    """What a page has said and asked for: messages of its console, errors, requests."""

    said: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def on(self, page: Page) -> None:
        """Begin to watch."""
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.said.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self.requests.append(request.url))


@contextmanager
def opened(
    browser: Browser,
    path: Path,
    anchor: str = "",
    *,
    width: int = 1280,
    scheme: Literal["light", "dark"] = "light",
    scripts: bool = True,
) -> Iterator[Page]:
    """The page of a file. It must load nothing but itself, and say nothing, from first to last."""
    address = path.resolve().as_uri()
    watch = Watch()
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        java_script_enabled=scripts,
    )
    try:
        page = context.new_page()
        watch.on(page)
        page.goto(address + anchor)
        yield page
    finally:
        context.close()
    assert watch.said == []
    assert {url.partition("#")[0] for url in watch.requests} == {address}
