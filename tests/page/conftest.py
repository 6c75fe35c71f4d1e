"""What every test in a browser shares."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from bench.browser import chromium

# An upper bound: a test continues as soon as the expected state is there. A busy machine may need long.
expect.set_options(timeout=60_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def open_file(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open a page of a file; the test fails if the page has an error, breaks its own policy or asks the network."""
    contexts: list[BrowserContext] = []
    troubles: list[str] = []

    def opened(path: Path, **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: None if request.url == path.as_uri() else troubles.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not troubles
