"""Start: an event, an object in the inbox or a schedule requests a run.

The name of the execution is derived from the request, so an event that arrives twice starts one run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from urllib.parse import unquote_plus

from aws_lambda_powertools.utilities.parser.models import EventBridgeModel, SnsModel
from pydantic import BaseModel, ConfigDict, ValidationError

from muster.contract.errors import MusterError, RunNameTakenError, SpecError, StatedProblem
from muster.contract.names import identified_run_name, scheduled_run_name
from muster.contract.run.execution_input import StartInput, scheduled_input, start_input
from muster.contract.run.run_events import RunRequested
from muster.contract.spec.spec_problems import problems_of
from muster.contract.spec.spec_reader import load_spec_text, spec_mapping
from muster.control.aws.bus import Bus
from muster.control.aws.executions import Executions
from muster.control.aws.inbox import Inbox
from muster.control.reporting.announcements import announce_refusal


class Schedule(BaseModel):
    """What a schedule of the stack sends: its name, its time, and a spec's text or the key of one in the inbox."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    at: str
    spec: str = ""
    spec_key: str | None = None


class _Object(BaseModel):
    key: str
    eTag: str  # noqa: N815 - S3's name


class _Entity(BaseModel):
    object: _Object


class _Created(BaseModel):
    s3: _Entity


class _Notification(BaseModel):
    """S3's notification, as far as Muster reads it.

    Powertools' S3Model is not used: it refuses a notification for fields that are not read here, such as a source
    "address" that is the name of an AWS service.
    """

    # S3 sends a test without records when the bucket's notifications are set up.
    Records: tuple[_Created, ...] = ()


class Started(StrEnum):
    """The result of a request for a run."""

    STARTED = "started"  # or it is already running: Step Functions does not distinguish the two
    KNOWN = "started before"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn: the object is gone or was replaced"


@dataclass(frozen=True)
class Starter:
    """Starts the runs that are requested, and reports why one is not."""

    executions: Executions
    inbox: Inbox
    bus: Bus

    def from_function_event(self, event: Mapping[str, object]) -> Iterator[Started]:
        """The result of every request in an event of the function: a schedule, Run Requested, or objects in the inbox.

        Raises:
            ValidationError: it is none of these.
        """
        if "schedule" in event:
            yield self.from_schedule(Schedule.model_validate(event["schedule"]))
        elif "detail-type" in event:
            request = EventBridgeModel.model_validate(event)
            yield self.from_event(request.id, request.detail)
        else:
            for key, etag in _objects(SnsModel.model_validate(event)):
                yield self.from_inbox(key, etag)

    def from_inbox(self, key: str, etag: str) -> Started:
        """Start the run of a spec in the inbox."""
        stem = key.rpartition("/")[2].partition(".")[0]
        try:
            text = self.inbox.read(key, etag)
            if text is None:
                return Started.WITHDRAWN
            started = self._start(start_input(load_spec_text(text)), identified_run_name(stem, f"{key}\n{etag}"))
        except (SpecError, RunNameTakenError) as error:
            self.inbox.complain(key, str(error))
            return self._refuse(self.inbox.uri(key), error)
        self.inbox.forget_complaint(key)
        return started

    def from_event(self, event_id: str, detail: object) -> Started:
        """Start the run of an event Run Requested."""
        try:
            spec = self._requested(detail)
            return self._start(start_input(spec), identified_run_name("requested", event_id))
        except (SpecError, RunNameTakenError) as error:
            return self._refuse(event_id, error)

    def from_schedule(self, schedule: Schedule) -> Started:
        """Start the run of a due schedule. `at` is the scheduled time, the same in every copy of the event."""
        name = scheduled_run_name(schedule.name, schedule.at)
        try:
            spec = self._read(schedule.spec_key) if schedule.spec_key else load_spec_text(schedule.spec)
            return self._start(scheduled_input(spec), name)
        except (SpecError, RunNameTakenError) as error:
            return self._refuse(name, error)

    def _requested(self, detail: object) -> Mapping[Any, Any]:
        try:
            wanted = RunRequested.model_validate(detail)
        except ValidationError as error:
            problems = problems_of(error, RunRequested)
            whole = "the spec"  # what a problem of the document itself is called
            fields = ["detail" if one.field == whole else f"detail.{one.field}" for one in problems]
            raise SpecError([replace(one, field=name) for one, name in zip(problems, fields, strict=True)]) from None
        if (wanted.spec is None) == (wanted.spec_uri is None):
            statement = "exactly one of spec and spec_uri must be set"
            raise SpecError([StatedProblem("detail", statement, 'write {"spec": {…}} or {"spec_uri": "s3://…"}')])
        if wanted.spec_uri is not None:
            return self._read(self.inbox.key_of(wanted.spec_uri))
        return spec_mapping(wanted.spec)

    def _read(self, key: str) -> Mapping[Any, Any]:
        text = self.inbox.read(key)
        if text is None:
            raise SpecError(
                [StatedProblem("the spec", "the object does not exist", f"put it at {self.inbox.uri(key)}")]
            )
        return load_spec_text(text)

    def _start(self, request: StartInput, name: str) -> Started:
        began = self.executions.start(request.name or name, request.text)
        return Started.STARTED if began else Started.KNOWN

    def _refuse(self, request: str, error: MusterError) -> Started:
        announce_refusal(self.bus, request, error)
        return Started.REFUSED


def _objects(notifications: SnsModel) -> Iterator[tuple[str, str]]:
    """Key and ETag of each object that S3's notifications, which come through SNS, report."""
    for record in notifications.Records:
        for created in _Notification.model_validate_json(str(record.Sns.Message)).Records:
            yield unquote_plus(created.s3.object.key), created.s3.object.eTag
