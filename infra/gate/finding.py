"""What a checker found, and which of it is accepted."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.contract.errors import ConfigurationError

_FIELDS = {"tool", "rule", "places", "reason"}
_REASON_MIN = 15  # characters: a reason is a sentence


class GateError(ConfigurationError):
    """A checker could not run, or the file of exceptions cannot be used."""


@dataclass(frozen=True, order=True)
class Finding:
    """One finding: the checker, its rule, where (a construct, a resource, or a file), and the checker's words."""

    tool: str
    rule: str
    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.tool} {self.rule}\n  {self.place}: {self.message}"


@dataclass(frozen=True)
class AcceptedPlace:
    """A rule that is accepted in a place. In both, `**` stands for any text; everything else is literal."""

    tool: str
    rule: str
    place: str

    def covers(self, finding: Finding) -> bool:
        """Whether this accepts `finding`."""
        return finding.tool == self.tool and _covers(self.rule, finding.rule) and _covers(self.place, finding.place)

    def __str__(self) -> str:
        return f"{self.tool} {self.rule} in {self.place}"


def read_exceptions(file: Path) -> tuple[AcceptedPlace, ...]:
    """The accepted places of a file with rows of `tool`, `rule`, `places` and `reason`.

    Raises:
        GateError: a row lacks a field or has one too many; all such rows.
    """
    rows = tomllib.loads(file.read_text(encoding="utf-8")).get("exception", [])
    problems = [
        f"{file.name}: row {number}: {problem}" for number, row in enumerate(rows, 1) for problem in _wrong(row)
    ]
    if problems:
        raise GateError("\n".join(problems))
    return tuple(AcceptedPlace(row["tool"], row["rule"], place) for row in rows for place in row["places"])


def judge(findings: Iterable[Finding], accepted: Sequence[AcceptedPlace]) -> tuple[list[Finding], list[AcceptedPlace]]:
    """The findings that no exception covers, and the exceptions that cover no finding; both sorted."""
    found = sorted(set(findings))
    used = {place for place in accepted if any(place.covers(finding) for finding in found)}
    still_open = [finding for finding in found if not any(place.covers(finding) for place in accepted)]
    return still_open, [place for place in accepted if place not in used]


def _wrong(row: dict[str, object]) -> list[str]:
    if row.keys() != _FIELDS:
        return [f"has the fields {', '.join(sorted(row))}; needs {', '.join(sorted(_FIELDS))}"]
    problems = []
    if not isinstance(row["places"], list) or not row["places"]:
        problems.append("places is a list of at least one place")
    if len(str(row["reason"])) < _REASON_MIN:
        problems.append(f"the reason has at least {_REASON_MIN} characters; found {row['reason']!r}")
    return problems


def _covers(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("**"))), text, re.DOTALL) is not None
