"""Which groups of the release's tests are green, so that an interrupted call is continued."""

import hashlib
import json
import subprocess
from pathlib import Path

from tests.support.source_patch import ROOT

FOLDER = ROOT / "build" / "test-release"


def state_of_the_tree() -> str:
    """Changes with every change to a file that git holds or would hold."""
    digest = hashlib.sha256(_git("rev-parse", "HEAD") + _git("diff", "HEAD"))
    for name in sorted(filter(None, _git("ls-files", "-z", "--others", "--exclude-standard").split(b"\0"))):
        digest.update(name + (ROOT / name.decode()).read_bytes())
    return digest.hexdigest()


def is_green(group: str, tree: str) -> bool:
    """Whether a group passed with this state of the tree."""
    path = _path(group)
    return path.exists() and json.loads(path.read_text())["tree"] == tree


def note_green(group: str, tree: str, seconds: float) -> None:
    """Remember that a group has passed."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = _path(group).with_suffix(".new")
    made.write_text(json.dumps({"tree": tree, "seconds": round(seconds, 1)}) + "\n")
    made.replace(_path(group))  # a full disk or an interrupt leaves no half of it


def _path(group: str) -> Path:
    return FOLDER / f"{group}.json"


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout
