"""The pages of the site: those of `docs/`, and one for each file of the repository that they link to.

A page of the repository may link to a source file; on the site that link leads to a page that shows the file.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

SOURCES = "source"  # where pages of files outside of docs/ lie on the site
_PAGES = (".md",)
_COPIED = (".png", ".svg", ".json", ".css", ".js")
_FENCE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".json": "json", ".sh": "bash", ".html": "html"}


class MissingTargetError(Exception):
    """A page links to what is not in the repository."""


def site_files(root: Path) -> dict[str, bytes]:
    """The files below the site's `docs_dir`, by path.

    Raises:
        MissingTargetError: links lead nowhere; all of them are named.
    """
    files: dict[str, bytes] = {}
    missing: list[str] = []
    linked: set[str] = set()
    for path in sorted((root / "docs").rglob("*")):
        name = path.relative_to(root / "docs").as_posix()
        if path.suffix in _PAGES:
            text, targets = _relinked(path.read_text(encoding="utf-8"), f"docs/{name}", name)
            files[name] = text.encode()
            missing += [f"docs/{name}: {target}" for target in targets if not (root / target).exists()]
            linked |= targets
        elif path.suffix in _COPIED:
            files[name] = path.read_bytes()
    if missing:
        message = "\n".join(["These links lead nowhere:", *sorted(missing)])
        raise MissingTargetError(message)
    files.update({name: text.encode() for name, text in _source_pages(root, linked)})
    return files


def page_names(entries: list[Mapping[str, object]]) -> list[str]:
    """The pages that a `nav` of the site's settings names, in order."""
    names: list[str] = []
    for entry in entries:
        for value in entry.values():
            names += page_names(value) if isinstance(value, list) else [str(value)]
    return names


def _relinked(text: str, place: str, page: str) -> tuple[str, set[str]]:
    """The text of a page with links to files outside of docs/ turned to their pages, and those files.

    `place` is the page's path in the repository, and `page` its path on the site.
    """
    targets: set[str] = set()

    def turned(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(place), found[1]))
        if target.startswith("docs/"):
            return posixpath.relpath(target.removeprefix("docs/"), posixpath.dirname(page) or ".") + (found[2] or "")
        targets.add(target)
        return posixpath.relpath(_page_of(target), posixpath.dirname(page) or ".")

    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [_LINK.sub(turned, text[end : fence.start()]), fence.group()]
        end = fence.end()
    return "".join([*parts, _LINK.sub(turned, text[end:])]), targets


def _source_pages(root: Path, linked: set[str]) -> Iterator[tuple[str, str]]:
    """The pages of these files and folders, and of what they link to themselves."""
    todo, done = sorted(linked), set[str]()
    while todo:
        target = todo.pop()
        if target in done or not (root / target).exists():
            continue
        done.add(target)
        path = root / target
        if path.is_dir():
            parts = [part for part in sorted(path.iterdir()) if part.is_file() and part.stem != "__init__"]
            children = [part.relative_to(root).as_posix() for part in parts]
            links = "\n".join(f"- [{PurePosixPath(child).name}]({PurePosixPath(child).name}.md)" for child in children)
            # The folder's page lies beside the folder of its files' pages.
            yield _page_of(target), f"# `{target}`\n\n{links.replace('](', f']({path.name}/')}\n"
        elif path.suffix in _PAGES:
            text, children_ = _relinked(path.read_text(encoding="utf-8"), target, _page_of(target))
            children = sorted(children_)
            yield _page_of(target), text
        else:
            children = []
            language = _LANGUAGES.get(path.suffix, "text")
            yield _page_of(target), f"# `{target}`\n\n````{language}\n{path.read_text(encoding='utf-8')}````\n"
        todo += children


def _page_of(target: str) -> str:
    """The page on the site that shows a file or folder of the repository."""
    return f"{SOURCES}/{target}" if target.endswith(".md") else f"{SOURCES}/{target}.md"
