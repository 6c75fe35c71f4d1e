"""The documentation as a site: every page is in its navigation, and every link leads to a page.

`make check` builds the site itself, which checks links between pages and their anchors.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from docs.build_site import SETTINGS, stage
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


def test_every_link_on_the_site_leads_to_one_of_its_files() -> None:
    files = site_files(ROOT)
    assert len([name for name in files if name.startswith("source/examples/frameworks/")]) > 5
    broken = []
    for name, content in files.items():
        if name.endswith(".md"):
            text = re.sub(r"^(`{3,}).*?^\1$", "", content.decode(), flags=re.DOTALL | re.MULTILINE)
            for target in re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", text):
                path = (Path("/") / name).parent.joinpath(target)
                if path.resolve().as_posix().lstrip("/") not in files:
                    broken.append((name, target))
    assert broken == []


def test_a_link_to_a_file_of_the_repository_leads_to_a_page_that_shows_it(tmp_path: Path) -> None:
    root = write(tmp_path, docs__guides__a="[one](../../examples/one.py#L3), [b](../b.md#part), [x](https://x.org)")
    write(root, docs__b="# B")
    (root / "examples").mkdir()
    (root / "examples" / "one.py").write_text("print(1)\n", encoding="utf-8")
    files = site_files(root)
    assert files["guides/a.md"] == b"[one](../source/examples/one.py.md), [b](../b.md#part), [x](https://x.org)"
    assert files["source/examples/one.py.md"] == b"# `examples/one.py`\n\n````python\nprint(1)\n````\n"


def test_a_link_to_a_folder_leads_to_a_list_of_its_files(tmp_path: Path) -> None:
    root = write(tmp_path, docs__a="[all](../examples)")
    (root / "examples").mkdir()
    (root / "examples" / "two.yaml").write_text("replicas: 2\n", encoding="utf-8")
    files = site_files(root)
    assert files["a.md"] == b"[all](source/examples.md)"
    assert files["source/examples.md"] == b"# `examples`\n\n- [two.yaml](examples/two.yaml.md)\n"
    assert "source/examples/two.yaml.md" in files


def test_a_link_inside_of_code_stays(tmp_path: Path) -> None:
    text = "```python\nrows[1](nothing)\n```\n"
    assert site_files(write(tmp_path, docs__a=text))["a.md"] == text.encode()


def test_all_links_that_lead_nowhere_are_named(tmp_path: Path) -> None:
    root = write(tmp_path, docs__a="[x](../missing.py)", docs__b="[y](../examples/none)")
    with pytest.raises(MissingTargetError) as caught:
        site_files(root)
    assert str(caught.value).splitlines() == [
        "These links lead nowhere:",
        "docs/a.md: missing.py",
        "docs/b.md: examples/none",
    ]


def test_a_page_that_was_deleted_leaves_the_staged_site(tmp_path: Path) -> None:
    root = write(tmp_path / "root", docs__a="# A", docs__b="# B")
    (root / "docs" / SETTINGS).write_text("[project]\n", encoding="utf-8")
    stage(root, tmp_path / "site")
    (root / "docs" / "b.md").unlink()
    stage(root, tmp_path / "site")
    staged = sorted(path.name for path in (tmp_path / "site").rglob("*") if path.is_file())
    assert staged == ["a.md", SETTINGS]
