"""What the commands of `muster` print with `--json`, where it is not a document of the SDK.

The fields are a promise to scripts: none is removed, none changes its meaning.
"""

from __future__ import annotations

from pydantic import Field, JsonValue

from muster.client.runs.event_log import EventLogEntry
from muster.client.runs.run_list import RunSummary
from muster.contract.document import Document
from muster.contract.errors import MusterError, Problem, SettingsError, SpecError


class StarterWritten(Document):
    """A spec to start with, and its code."""

    files: tuple[str, ...] = Field(description="what was written, the spec first; nothing when the spec is printed")
    text: str | None = Field(description="the spec itself, when it was written nowhere")


class Started(Document):
    """A run that was started."""

    run: str
    parent: str | None = Field(default=None, description="the run that it continues")


class UserPolicy(Document):
    """The rights of a user of the client."""

    policy: dict[str, JsonValue] = Field(description="an IAM policy document")


class GpuType(Document):
    """An instance type with GPUs."""

    instance_type: str
    gpu: str
    count: int
    memory_gib: int = Field(description="of one GPU")
    usd_per_hour: float | None = Field(description="on demand; none: not in the price table")
    quota: float | None = Field(description="instances for training jobs; none: not asked, or not known")
    spot_quota: float | None = Field(description="instances for spot training jobs")


class GpuTypes(Document):
    """The instance types with GPUs that this release knows."""

    types: tuple[GpuType, ...]
    prices: str = Field(description="whose prices these are")


class Runs(Document):
    """The runs of a stack, the newest first."""

    runs: tuple[RunSummary, ...]
    more: bool = Field(default=False, description="whether there are more than --limit shows")


class RunsPageWritten(Document):
    """The page of a stack's runs in a file."""

    file: str
    bytes: int
    runs: int = Field(description="how many it shows")
    more: bool = Field(description="whether there are more than --limit shows")


class EventLog(Document):
    """The events of a run, oldest first."""

    run: str
    events: tuple[EventLogEntry, ...]


class PageWritten(Document):
    """A run's page in a file."""

    run: str
    file: str
    bytes: int


class PageServed(Document):
    """A run's page on this machine."""

    run: str
    url: str


class ErrorDetail(Document):
    """What went wrong."""

    code: str = Field(description="Muster. and the error's class")
    message: str = Field(description="the message, as on standard error")
    problems: tuple[Problem, ...] = Field(description="of a spec or of settings, all at once; of another error none")
    more: int = Field(default=0, description="problems that are not listed, because there are very many")


def error_detail(error: MusterError) -> ErrorDetail:
    """The answer for an error."""
    detail = ErrorDetail(code=error.code, message=str(error), problems=())
    if isinstance(error, SpecError | SettingsError):
        detail = detail.model_copy(update={"problems": error.problems, "more": error.more})
    return detail


class Failed(Document):
    """A command that ended with an error; with --json it prints this instead of its answer."""

    error: ErrorDetail
