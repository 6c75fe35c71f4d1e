"""A headless Chromium for all code that opens pages: tests, screenshots, measurements."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from muster.contract.errors import MusterError

_NAMES = ("chromium", "chromium-browser", "google-chrome")
# In a container there is no sandbox, and often no GPU. The browser must send no requests of its own.
_OPTIONS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


class NoBrowserError(MusterError):
    """There is no Chromium on this machine."""

    def __init__(self) -> None:
        super().__init__(
            f"None of {', '.join(_NAMES)} is on the PATH: install Chromium (on Debian: apt-get install chromium)."
        )


@contextmanager
def chromium() -> Iterator[Browser]:
    """The machine's Chromium with a temporary profile.

    Raises:
        NoBrowserError: there is none.
    """
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        raise NoBrowserError
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_OPTIONS))
        try:
            yield browser
        finally:
            browser.close()
