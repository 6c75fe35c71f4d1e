"""What of a folder is not packed: a few names always, and what its `.musterignore` says."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

IGNORE_FILE = ".musterignore"
# Never code, and often large or secret.
_ALWAYS = (".git", ".hg", ".svn", ".venv", "venv", "__pycache__", "*.pyc", ".DS_Store", ".env", "node_modules")


@dataclass(frozen=True)
class Ignored:
    """Patterns as in a shell. One without a slash matches a name in any folder, one with a slash a whole path."""

    patterns: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path) -> Ignored:
        """The patterns for `folder`: one a line; empty lines and those that begin with `#` say nothing."""
        path = folder / IGNORE_FILE
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        own = (line.strip() for line in lines)
        return cls((*_ALWAYS, *(line.strip("/") for line in own if line and not line.startswith("#"))))

    def covers(self, relative: str) -> bool:
        """Whether the file or folder at this path, relative to the root and with slashes, is left out."""
        name = relative.rpartition("/")[2]
        return any(fnmatchcase(relative if "/" in pattern else name, pattern) for pattern in self.patterns)
