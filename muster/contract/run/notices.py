"""Notices: small objects with which replicas wake the control plane, because a cluster sends no event about a job.

S3's event about a notice names its key, and the key names an attempt or a rank. That is all that is believed: the
function looks at the job itself. A body is read only for the words of a failure. A replica may write notices of its own
run alone, so a forged one causes one look at a job of that run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from pydantic import Field

from muster.contract.document import StoredDocument
from muster.contract.exits import FAILURE_CHARACTERS
from muster.contract.names import is_run_name
from muster.contract.timestamps import Timestamp

NOTICES = "notices/"
"""The prefix of all notices in the stack's bucket."""
NOTICE_BYTES_MAX = 16_384

_KEY = re.compile(
    rf"{NOTICES}(?P<run>[a-zA-Z0-9-]+)/(?P<kind>start|end|missing)-r(?P<rank>0|[1-9]\d{{0,3}})"
    r"(?:-a(?P<attempt>[1-9]\d{0,2}))?-(?P<mark>[a-z0-9-]{1,64})\.json"
)


class NoticeKind(StrEnum):
    """What a notice says."""

    START = "start"
    """The program of a replica's first pod starts: at first, after a restart, or with another number of pods."""
    END = "end"
    """A container of an attempt has ended; it lived long enough to say so."""
    MISSING = "missing"
    """A round was committed without a rank that should have contributed."""


@dataclass(frozen=True)
class Notice:
    """The key of a notice. `mark` differs in each: the pod and its start, or the round. `attempt`: not of a round."""

    run: str
    kind: NoticeKind
    rank: int
    attempt: int | None
    mark: str

    @property
    def key(self) -> str:
        """Its key in the bucket."""
        return f"{NOTICES}{self.run}/{self.name}"

    @property
    def name(self) -> str:
        """Its name below the notices of its run."""
        attempt = "" if self.attempt is None else f"-a{self.attempt}"
        return f"{self.kind}-r{self.rank}{attempt}-{self.mark}.json"

    @classmethod
    def parse(cls, key: str) -> Notice | None:
        """The parts of a key; None where it is none of a notice."""
        match = _KEY.fullmatch(key)
        if match is None or not is_run_name(match["run"]):
            return None
        kind, attempt = NoticeKind(match["kind"]), match["attempt"]
        if (attempt is None) is not (kind is NoticeKind.MISSING):
            return None
        return cls(match["run"], kind, int(match["rank"]), None if attempt is None else int(attempt), match["mark"])


class EndNotice(StoredDocument):
    """What a container says of its end. Only its words are used, and only where the job itself has failed."""

    exit_code: int = Field(ge=0, le=255)
    reason: str = Field(default="", max_length=FAILURE_CHARACTERS, description="as in SageMaker's output/failure")
    started_at: Timestamp
    ended_at: Timestamp
    pod: str = Field(default="", max_length=253)
