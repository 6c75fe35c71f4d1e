"""The runs of a day that have ended, in one object: what a list of runs shows, without a look at each of them.

A run belongs to the day on which it was planned, which is that of its execution's start or, around midnight, the one
after. A client lists the days, and reads those whose ETag has changed: so a list costs the same whatever the runs hold.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field

from muster.contract.document import Document, StoredDocument, StoredPart
from muster.contract.timestamps import Timestamp

ENDED = "ended/"
"""The prefix of the days."""
REASON_MAX = 240
"""Characters of a reason: a day with a thousand runs stays below a megabyte."""
_DAY = 10  # characters of 2026-11-22


class Verdict(StrEnum):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"


class FailureCount(StoredPart):
    """How many attempts of a run did not succeed for one reason."""

    failure_class: str = Field(description="a failure class, perhaps one of a newer version")
    attempts: int = Field(ge=1)
    reruns: int = Field(default=0, ge=0, description="how many of them were followed by another attempt")


class RunLine(Document):
    """What a list shows of a run. Of one that has not ended, most of it is not known."""

    run: str
    started_at: Timestamp
    reason: str = Field(default="", description="why it ended so, shortened")
    replicas: int | None = Field(default=None, ge=0, description="none where it is not known")
    parked: int = Field(default=0, ge=0, description="of an elastic run: how many of them were parked at its end")
    rounds: int | None = Field(default=None, description="the last round committed, those of the runs before included")
    reruns: int | None = Field(default=None, ge=0, description="attempts after a failed one, all replicas together")
    failures: tuple[FailureCount, ...] = Field(
        default=(), description="why attempts did not succeed, the most frequent first"
    )
    usd: float | None = Field(
        default=None, description="what its instances cost at on-demand prices; none where a type has no price"
    )
    parent: str | None = Field(default=None, description="the run that it continues")
    continued_by: str | None = Field(default=None, description="the run that continues it")
    recipe: str | None = Field(default=None, description="the name of the recipe that it started from")


class EndedRun(RunLine, StoredPart):
    """A run that has ended. It started when it was planned."""

    execution_arn: str
    verdict: Verdict


class EndedRuns(StoredDocument):
    """The runs of a day that have ended. Every write is a compare-and-swap on the object's ETag."""

    runs: tuple[EndedRun, ...] = Field(default=(), description="in the order in which they ended")

    def with_run(self, ended: EndedRun) -> Self:
        """This day with `ended`, which replaces an earlier entry of its execution; itself where nothing changes."""
        known = {run.execution_arn: run for run in self.runs}
        if known.get(ended.execution_arn) == ended:
            return self
        return self.model_copy(update={"runs": tuple({**known, ended.execution_arn: ended}.values())})


def key_of_day(at: Timestamp | str) -> str:
    """The object of the day on which something happened: `ended/2026-11-22.json`."""
    return f"{ENDED}{at[:_DAY]}.json"
