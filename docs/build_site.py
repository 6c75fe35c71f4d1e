"""Builds the documentation as a site: `make site` writes build/site/html.

Zensical is the maintained successor of Material for MkDocs, whose support ends in May 2027. It checks every link and
anchor, its search runs in the browser, and its pages load nothing from another host.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from docs.site_pages import MissingTargetError, site_files

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = "zensical.toml"


def stage(root: Path, folder: Path) -> None:
    """Write the site's settings and pages to `folder`, and leave files alone that are as they should be.

    Raises:
        MissingTargetError: links lead nowhere.
    """
    wanted = {f"docs/{name}": content for name, content in site_files(root).items()}
    wanted[SETTINGS] = (root / "docs" / SETTINGS).read_bytes()
    for path in sorted((folder / "docs").rglob("*"), reverse=True):
        if path.is_file() and path.relative_to(folder).as_posix() not in wanted:
            path.unlink()
    for name, content in wanted.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def build(zensical: Path, folder: Path) -> int:
    """Build the site from its staged `folder`; the exit code is not 0 if a page has a broken link."""
    shutil.rmtree(folder / "html", ignore_errors=True)
    command: list[str | Path] = [
        zensical.absolute(),
        "build",
        "--strict",
        "--clean",
        "--config-file",
        folder / SETTINGS,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        # On a broken link it prints a traceback of its own behind the findings.
        print(done.stdout + done.stderr.partition("Traceback (most recent call last)")[0], file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    os.chdir(ROOT)
    FOLDER = Path("build/site")
    try:
        stage(ROOT, FOLDER)
    except MissingTargetError as error:
        sys.exit(str(error))
    CODE = build(Path(sys.argv[1]), FOLDER)
    if not CODE:
        print(f"The site is in {FOLDER}/html. To read it: python3 -m http.server --bind 127.0.0.1 -d {FOLDER}/html")
    sys.exit(CODE)
