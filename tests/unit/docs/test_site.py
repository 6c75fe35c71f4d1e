"""The documentation as a site: every page is in its navigation, and a link to the repository leads to a page.

`make check` builds the site itself, which checks links between pages and their anchors.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from docs.build_site import SETTINGS
from docs.site_pages import MissingTargetError, page_names, site_files

ROOT = Path(__file__).parents[3]


def write(root: Path, **pages: str) -> Path:
    for name, text in pages.items():
        path = root / name.replace("__", "/")
        path = path.with_suffix(".md") if not path.suffix else path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_the_navigation_has_every_page_once() -> None:
    settings = tomllib.loads((ROOT / "docs" / SETTINGS).read_text(encoding="utf-8"))
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(page_names(settings["project"]["nav"])) == sorted(pages)


def test_a_link_to_the_repository_leads_to_a_page_that_shows_it_and_code_stays(tmp_path: Path) -> None:
    code = "```python\nrows[1](nothing)\n```\n"
    root = write(tmp_path, docs__guides__a="[one](../../examples/one.py#L3), [b](../b.md#part), [x](https://x.org)")
    write(root, docs__b="[all](../examples)\n" + code)
    (root / "examples").mkdir()
    (root / "examples" / "one.py").write_text("print(1)\n", encoding="utf-8")
    files = site_files(root)
    assert files["guides/a.md"] == b"[one](../source/examples/one.py.md), [b](../b.md#part), [x](https://x.org)"
    assert files["b.md"].decode() == "[all](source/examples.md)\n" + code
    assert files["source/examples/one.py.md"] == b"# `examples/one.py`\n\n````python\nprint(1)\n````\n"
    assert files["source/examples.md"] == b"# `examples`\n\n- [one.py](examples/one.py.md)\n"


def test_all_links_that_lead_nowhere_are_named(tmp_path: Path) -> None:
    root = write(tmp_path, docs__a="[x](../missing.py)", docs__b="[y](../examples/none)")
    with pytest.raises(MissingTargetError) as caught:
        site_files(root)
    assert str(caught.value).splitlines()[1:] == ["docs/a.md: missing.py", "docs/b.md: examples/none"]
