"""The files of a folder that are not packed: a few names always, and those that its `.musterignore` excludes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from muster.contract.errors import Problem, SpecError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE = ".musterignore"
# What `muster model` and the embedded cloud write: never code, but a pattern of the user's may bring it back.
_WRITTEN = ("*.safetensors", ".muster")
# Never code, and often large or secret.
_ALWAYS = (
    *(".git", ".hg", ".svn", ".venv", "venv", "__pycache__", "*.pyc", ".DS_Store", "node_modules"),
    *(".env", ".env.*", ".aws", ".ssh", ".netrc", ".git-credentials"),
)


@dataclass(frozen=True)
class Ignored:
    """The patterns for one folder, as in .gitignore. The last one that matches decides."""

    patterns: GitIgnoreSpec

    @classmethod
    def of(cls, folder: Path) -> Ignored:
        """The patterns for `folder`.

        Raises:
            SpecError: a line of the ignore file is not a pattern.
        """
        # Most plans read no folder.
        from pathspec import GitIgnoreSpec  # noqa: PLC0415

        path = folder / IGNORE_FILE
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines() if path.is_file() else []
        except UnicodeDecodeError as error:
            found = f"{IGNORE_FILE}, which is not UTF-8 text"
            raise SpecError([Problem("source_dir", found, "write a pattern as in .gitignore in each line")]) from error
        for number, line in enumerate(lines, start=1):
            try:
                GitIgnoreSpec.from_lines([line])
            except ValueError as error:
                found = f"{line!r} in line {number} of {IGNORE_FILE}"
                raise SpecError([Problem("source_dir", found, "write a pattern as in .gitignore")]) from error
        # Last, so that no pattern of the user's brings one of them back.
        return cls(GitIgnoreSpec.from_lines([*_WRITTEN, *lines, *_ALWAYS]))

    def leaves_out(self, relative: PurePath) -> bool:
        """Whether a file is not packed: it or one of its folders is covered."""
        folders = [parent.as_posix() for parent in relative.parents if parent.name]
        return self.covers(relative.as_posix()) or any(self.covers(folder, folder=True) for folder in folders)

    def covers(self, relative: str, *, folder: bool = False) -> bool:
        """Whether the file (or folder) at this path, relative to the root and with slashes, is left out."""
        return self.patterns.match_file(f"{relative}/" if folder else relative)
