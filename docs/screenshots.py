"""Pictures of a page for docs/, at three widths: `make screenshots`."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.browser import chromium

DOCS = Path(__file__).parent
# A phone, a tablet held upright, a laptop; the last one in the dark.
WIDTHS = {"phone": (390, "light"), "tablet": (820, "light"), "laptop": (1280, "dark")}


def take(page: Path, folder: Path = DOCS) -> list[Path]:
    """Write `page-{name}.png` for each of `WIDTHS`."""
    taken = []
    with chromium() as browser:
        for name, (width, scheme) in WIDTHS.items():
            context = browser.new_context(
                viewport={"width": width, "height": 900},
                color_scheme="dark" if scheme == "dark" else "light",
                reduced_motion="reduce",
            )
            shown = context.new_page()
            shown.goto(page.absolute().as_uri())
            shown.wait_for_selector("html[data-ready]")
            taken.append(folder / f"page-{name}.png")
            shown.screenshot(path=taken[-1], full_page=True)
            context.close()
    return taken


if __name__ == "__main__":
    for path in take(Path(sys.argv[1])):
        print(path)
