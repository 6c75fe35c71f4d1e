"""The mark of an attempt whose launch was refused for now: no job shows what the replica waits for.

All that it says stands in its key, so that a client learns of thousands by listing, and may read nothing beside it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from muster.contract.aws.failures import FailureClass
from muster.contract.layout import RunLayout

_MARK = re.compile(r"(?P<rank>\d{1,4})-(?P<attempt>\d{1,3})-(?P<failure_class>[a-z-]+)")


class Waiting(NamedTuple):
    """Attempt `attempt` of `rank` is to be launched once what `failure_class` names is there."""

    rank: int
    attempt: int
    failure_class: FailureClass

    def key(self, layout: RunLayout) -> str:
        """Where the mark lies."""
        return f"{layout.waiting}{self.rank}-{self.attempt}-{self.failure_class}"

    @classmethod
    def from_key(cls, key: str) -> Waiting | None:
        """What the mark at `key` says; None where it is none."""
        match = _MARK.fullmatch(key.rpartition("/")[2])
        if match is None or match["failure_class"] not in set(FailureClass):
            return None
        return cls(int(match["rank"]), int(match["attempt"]), FailureClass(match["failure_class"]))
