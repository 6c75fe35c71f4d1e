"""Whether a commit may become a release. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
_SECTION = re.compile(
    r"^## (?P<version>\S+)(?: \((?P<date>\d{4}-\d{2}-\d{2})\))?\n(?P<body>.*?)(?=^## |\Z)", re.M | re.S
)


@dataclass(frozen=True)
class Candidate:
    """What is known of a commit."""

    version: str
    """`muster.__version__`."""
    changelog: str
    """The text of CHANGELOG.md."""
    changes: tuple[str, ...] = ()
    """The files that differ from the commit."""
    tags: tuple[str, ...] = ()

    @property
    def tag(self) -> str:
        """The tag of the release."""
        return f"v{self.version}"


def release_problems(candidate: Candidate) -> Iterator[str]:
    """Everything that stands against the release, one line each."""
    if not _VERSION.fullmatch(candidate.version):
        yield f"muster/__init__.py: the version is {candidate.version}; write one such as 1.2.3 or 1.2.3rc1."
    if candidate.changes:
        shown = ", ".join(candidate.changes[:5]) + (" and others" if len(candidate.changes) > 5 else "")
        yield f"The tree differs from its commit in {shown}: commit or remove what must not be released."
    if candidate.tag in candidate.tags:
        yield f"The tag {candidate.tag} is there already: raise __version__ in muster/__init__.py."
    newest = _SECTION.search(candidate.changelog)
    if newest is None or newest["version"] != candidate.version:
        found = "no version" if newest is None else newest["version"]
        yield f"CHANGELOG.md begins with {found}: begin it with a section `## {candidate.version} (YYYY-MM-DD)`."
    elif newest["date"] is None:
        yield f"CHANGELOG.md: the section {candidate.version} has no date; write `## {candidate.version} (YYYY-MM-DD)`."
    elif not newest["body"].strip():
        yield f"CHANGELOG.md: the section {candidate.version} is empty; say what changed."
