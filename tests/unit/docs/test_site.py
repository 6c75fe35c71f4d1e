"""The documentation as a site: `make check` builds it, which checks its links; here is what that does not see."""

import tomllib
from pathlib import Path

from docs.build_site import SETTINGS
from docs.site_pages import page_names

ROOT = Path(__file__).parents[3]


def test_the_navigation_has_every_page_once() -> None:
    settings = tomllib.loads((ROOT / "docs" / SETTINGS).read_text(encoding="utf-8"))
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(page_names(settings["project"]["nav"])) == sorted(pages)
