"""What the commands of `muster` print with `--json`. The fields are a promise to scripts: none goes, none changes."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from muster.client.runs.event_log import EventLogEntry
from muster.client.runs.run_list import RunSummary
from muster.contract.document import Document


class SpecWritten(Document):
    """A spec to begin with."""

    file: str = Field(description="where it was written; - is nowhere")
    text: str | None = Field(description="the spec itself, when it was written nowhere")


class Started(Document):
    """A run that was started."""

    run: str


class GoesOn(Document):
    """A run that goes on as another one."""

    run: str = Field(description="the one that goes on")
    parent: str = Field(description="the one that has ended")


class Runs(Document):
    """The runs of a stack, the newest first."""

    runs: tuple[RunSummary, ...]


class LoggedLine(Document):
    """One line that a replica has written."""

    at: str = Field(description="ISO 8601 in UTC")
    rank: int
    attempt: int
    job: str
    message: str


class EventLog(Document):
    """What has happened to a run, oldest first."""

    run: str
    events: tuple[EventLogEntry, ...]


class Cancelled(Document):
    """A run that was to be stopped."""

    run: str
    cancelled: bool = Field(description="false: it had ended already")


class PageWritten(Document):
    """A run's page in a file."""

    run: str
    file: str
    bytes: int


class PageServed(Document):
    """A run's page on this machine."""

    run: str
    url: str


class Strays(Document):
    """Training jobs under the stack's names whose run has no running execution."""

    orphans: tuple[str, ...] = Field(description="Muster made them; the stack's next sweep stops them")
    foreign: tuple[str, ...] = Field(description="somebody else made them; nobody touches them")


class RankGroup(Document):
    """Ranks whose requests differ in nothing but the rank."""

    ranks: str = Field(description="as a spec names them: 0-2,5")
    instance_types: tuple[str, ...]


class NeededQuota(Document):
    """A quota as Service Quotas names it."""

    name: str
    instances: int
    for_fallbacks: int = Field(description="so many more if every replica had to take a fallback of this type")


class PriceSource(Document):
    """Which prices an estimate has used."""

    as_of: str
    region: str
    source: str


class CostEstimate(Document):
    """Dollars for instances alone; null where a type has no price."""

    per_hour: float | None = Field(description="all replicas at once, on their first choice")
    attempt_ceiling: float | None = Field(description="one attempt of each, on its dearest type, to its time limit")
    ceiling: float | None = Field(description="the same with every rerun that the budgets allow")
    unpriced: tuple[str, ...]
    currency: str
    estimate: bool
    prices: PriceSource


class SourceArchive(Document):
    """A folder of source code as a launch would pack it."""

    key: str = Field(description="where it would lie in the stack's bucket")
    files: int
    bytes: int


class Forecast(Document):
    """What a spec would send, need and cost."""

    requests: tuple[dict[str, Any], ...] = Field(
        description="CreateTrainingJob of every replica's first attempt, by rank"
    )
    groups: tuple[RankGroup, ...]
    quotas: tuple[NeededQuota, ...]
    cost: CostEstimate
    source: SourceArchive | None
    remarks: tuple[str, ...]


class SpecProblem(Document):
    """One thing wrong with a spec."""

    field: str
    found: str
    allowed: str
    remedy: str


class ErrorDetail(Document):
    """What went wrong."""

    code: str = Field(description="Muster. and the error's class")
    message: str = Field(description="what stands on standard error, too")
    problems: tuple[SpecProblem, ...] = Field(description="of a spec, all at once; of another error none")


class Failed(Document):
    """A command that has ended with an error; with --json it prints this in the place of its answer."""

    error: ErrorDetail
