"""The mark of an attempt whose launch was refused for now: no job shows what the replica waits for.

The mark holds all its data in its key, so a client finds thousands by listing and needs no permission to read objects.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.layout import RunLayout

_MARK = re.compile(r"(?P<rank>\d{1,4})-(?P<attempt>\d{1,3})-(?P<failure_class>[a-z-]+)")


class Waiting(NamedTuple):
    """Attempt `attempt` of `rank` waits because the launch before it was refused with `failure_class`."""

    rank: int
    attempt: int
    failure_class: FailureClass

    def key(self, layout: RunLayout) -> str:
        """The mark's key."""
        return f"{layout.waiting}{self.rank}-{self.attempt}-{self.failure_class}"

    @classmethod
    def from_key(cls, key: str) -> Waiting | None:
        """The mark with this key; None where it is not one."""
        match = _MARK.fullmatch(key.rpartition("/")[2])
        if match is None or match["failure_class"] not in set(FailureClass):
            return None
        return cls(int(match["rank"]), int(match["attempt"]), FailureClass(match["failure_class"]))
