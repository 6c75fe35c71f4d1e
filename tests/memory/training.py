"""SageMaker training: jobs that live as the test says, and the events that their changes send."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.memory.calls import AwsError, Operation, Parameters, refuse
from tests.memory.clock import VirtualClock
from tests.memory.notifications import Notifications, epoch_milliseconds
from tests.memory.plain_data import copied

_DEFAULT_PAGE = 10  # ListTrainingJobs: MaxResults
_REASON_MAX = 1_024  # DescribeTrainingJob: FailureReason
_ENDS = {"Completed", "Failed", "Stopped"}
_PHASES = ("Starting", "Downloading", "Training", "Uploading")
_MESSAGES = {
    "Starting": "Preparing the instances for training",
    "Downloading": "Downloading the training image",
    "Training": "Training image download completed. Training in progress.",
    "Uploading": "Uploading generated training model",
    "Completed": "Training job completed",
}
# What a state-change event repeats of the request; Environment is not in it.
_IN_EVENTS = (
    "AlgorithmSpecification",
    "HyperParameters",
    "InputDataConfig",
    "OutputDataConfig",
    "ResourceConfig",
    "StoppingCondition",
    "RoleArn",
)
_NOT_DESCRIBED = {"Tags", "SessionChainingConfig"}
_EVER = datetime.min.replace(tzinfo=UTC)
_LISTING = {
    *("NameContains", "CreationTimeAfter", "StatusEquals", "WarmPoolStatusEquals"),
    *("SortOrder", "MaxResults", "NextToken"),
}


@dataclass
class _Transition:
    status: str
    started: datetime
    message: str
    ended: datetime | None = None

    def document(self, unit: Callable[[datetime], Any]) -> dict[str, Any]:
        shown = {"Status": self.status, "StartTime": unit(self.started), "StatusMessage": self.message}
        return shown if self.ended is None else {**shown, "EndTime": unit(self.ended)}


@dataclass
class _Job:
    request: dict[str, Any]
    arn: str
    created: datetime
    status: str = "InProgress"
    reason: str | None = None
    selected: dict[str, Any] | None = None
    """Of the instance preferences the one that there was capacity for."""
    training_started: datetime | None = None
    ended: datetime | None = None
    billable_seconds: int | None = None
    uploaded: bool = False
    described: dict[str, Any] = field(default_factory=dict)
    """What else DescribeTrainingJob says of it."""
    transitions: list[_Transition] = field(default_factory=list)
    lagging: dict[str, Any] | None = None
    """What DescribeTrainingJob still shows of it."""

    @property
    def name(self) -> str:
        return str(self.request["TrainingJobName"])

    @property
    def modified(self) -> datetime:
        return self.transitions[-1].started

    @property
    def secondary(self) -> str:
        return self.transitions[-1].status

    @property
    def artifacts(self) -> str:
        """Where the model goes. The model of DescribeTrainingJob says that it is always there."""
        output = self.request["OutputDataConfig"]
        kind = "model/" if output.get("CompressionType") == "NONE" else "model.tar.gz"
        return f"{output['S3OutputPath'].rstrip('/')}/{self.name}/output/{kind}"

    def resources(self) -> dict[str, Any]:
        chosen = self.selected
        if chosen is None:
            return dict(self.request["ResourceConfig"])
        count = {"SelectedInstanceCount": chosen["InstanceCount"]} if "InstanceCount" in chosen else {}
        return {**self.request["ResourceConfig"], "SelectedInstanceType": chosen["InstanceType"], **count}

    def state(self, unit: Callable[[datetime], Any]) -> dict[str, Any]:
        shown = {
            "TrainingJobName": self.name,
            "TrainingJobArn": self.arn,
            "TrainingJobStatus": self.status,
            "SecondaryStatus": self.secondary,
            "CreationTime": unit(self.created),
            "LastModifiedTime": unit(self.modified),
        }
        if self.reason is not None:
            shown["FailureReason"] = self.reason
        if self.training_started is not None:
            shown["TrainingStartTime"] = unit(self.training_started)
        if self.ended is not None:
            shown["TrainingEndTime"] = unit(self.ended)
        return shown


class Training:
    """Training jobs of one account and region. The methods without underscore are the test's hand on them."""

    def __init__(self, clock: VirtualClock, notifications: Notifications, account: str, region: str) -> None:
        self._clock = clock
        self._notifications = notifications
        self._base = f"arn:aws:sagemaker:{region}:{account}:training-job/"
        self._lock = threading.RLock()
        self._jobs: dict[str, _Job] = {}
        self.stop_seconds = 120.0
        """How long a stopped job is Stopping: SIGTERM, then 120 s until SIGKILL."""
        self.list_lag_seconds = 0.0
        """How long ListTrainingJobs does not know of a job that was created."""
        self.operations = {
            "CreateTrainingJob": Operation(self._create),
            "DescribeTrainingJob": Operation(self._describe, {"TrainingJobName"}),
            "ListTrainingJobs": Operation(self._list, _LISTING),
            "ListTags": Operation(self._list_tags, {"ResourceArn", "NextToken", "MaxResults"}),
            "StopTrainingJob": Operation(self._stop, {"TrainingJobName"}),
        }

    # --- the test's hand -----------------------------------------------------------------------

    def names(self, *statuses: str) -> list[str]:
        """The jobs in any of these statuses, all of them without any, in the order of their creation."""
        with self._lock:
            return [job.name for job in self._jobs.values() if not statuses or job.status in statuses]

    def status(self, name: str) -> tuple[str, str]:
        """TrainingJobStatus and SecondaryStatus."""
        job = self._named(name)
        return job.status, job.secondary

    def advance(self, name: str, secondary: str | None = None, message: str | None = None) -> None:
        """Enter a secondary status, the next phase of an undisturbed life by default."""
        with self._lock:
            job = self._alive(name)
            self._enter(job, secondary or _after(job.secondary), message)

    def train(self, name: str, instance_type: str | None = None) -> None:
        """Come as far as Training. `instance_type`: which of the preferences; the first by default."""
        with self._lock:
            job = self._alive(name)
            if preferences := job.request["ResourceConfig"].get("InstancePreferences"):
                wanted = instance_type or preferences[0]["InstanceType"]
                job.selected = next(item for item in preferences if item["InstanceType"] == wanted)
            while job.secondary != "Training":
                self._enter(job, _after(job.secondary))

    def complete(self, name: str) -> None:
        """End well; a job that was asked to stop is Stopped, whatever its program did."""
        with self._lock:
            job = self._alive(name)
            if job.status == "Stopping":
                self._end(job, "Stopped", "Stopped", None)
                return
            if job.training_started is None:
                self.train(name)
            self._enter(job, "Uploading")
            job.uploaded = True
            self._end(job, "Completed", "Completed", None)

    def fail(self, name: str, reason: str, secondary: str = "Failed", *, uploaded: bool = False) -> None:
        """End as Failed."""
        with self._lock:
            job = self._alive(name)
            job.uploaded = uploaded
            self._end(job, "Failed", secondary, reason)

    def end_stopped(self, name: str, secondary: str = "Stopped") -> None:
        """End as Stopped: after a stop, or by itself as MaxRuntimeExceeded or MaxWaitTimeExceeded."""
        with self._lock:
            self._end(self._alive(name), "Stopped", secondary, None)

    def stop_by_user(self, name: str) -> None:
        """StopTrainingJob by a user; the call log does not have it."""
        self._stop({"TrainingJobName": name})

    def delete(self, name: str) -> None:
        """DeleteTrainingJob by a user: of a job that has ended."""
        with self._lock:
            job = self._named(name)
            assert job.status in _ENDS
            del self._jobs[job.arn.lower()]

    # --- operations ----------------------------------------------------------------------------

    def _create(self, request: Parameters) -> dict[str, Any]:
        name = request["TrainingJobName"]
        arn = self._base + name
        with self._lock:
            # Some of AWS's interfaces show ARNs in lower case: names that differ in case only are refused here.
            if arn.lower() in self._jobs:
                message = (
                    "Training job names must be unique within an AWS account and region, "
                    f"and a training job with this name already exists ({arn})"
                )
                refuse("ResourceInUse", message)
            job = _Job(dict(request), arn, self._clock.now())
            self._jobs[arn.lower()] = job
            self._enter(job, "Starting")
        return {"TrainingJobArn": arn}

    def _describe(self, request: Parameters) -> dict[str, Any]:
        with self._lock:
            job = self._named(request["TrainingJobName"])
            if job.lagging is not None:
                return copied(job.lagging)
            shown: dict[str, Any] = {
                "EnableNetworkIsolation": False,
                "EnableInterContainerTrafficEncryption": False,
                "EnableManagedSpotTraining": False,
                **{name: value for name, value in job.request.items() if name not in _NOT_DESCRIBED},
                **job.state(lambda at: at),
                "ResourceConfig": job.resources(),
                "SecondaryStatusTransitions": [entry.document(lambda at: at) for entry in job.transitions],
                "ModelArtifacts": {"S3ModelArtifacts": job.artifacts},
            }
            if job.training_started is not None and job.ended is not None:
                seconds = round((job.ended - job.training_started).total_seconds())
                shown["TrainingTimeInSeconds"] = seconds
                shown["BillableTimeInSeconds"] = seconds if job.billable_seconds is None else job.billable_seconds
            return copied({**shown, **job.described})

    def _list(self, request: Parameters) -> dict[str, Any]:
        """By default, the oldest comes first. A page is filled, and then shows its jobs in the status."""
        visible = self._clock.now() - timedelta(seconds=self.list_lag_seconds)
        with self._lock:
            jobs = [job for job in self._jobs.values() if job.created <= visible and _is_selected(job, request)]
            jobs.sort(key=lambda job: job.created)
            if request.get("SortOrder") == "Descending":
                jobs.reverse()
            start = _position(request.get("NextToken"))
            stop = start + request.get("MaxResults", _DEFAULT_PAGE)
            wanted = request.get("StatusEquals")
            rows = [_summary(job) for job in jobs[start:stop] if wanted in {None, job.status}]
            return {"TrainingJobSummaries": rows, **({"NextToken": f"{stop}"} if stop < len(jobs) else {})}

    def _list_tags(self, request: Parameters) -> dict[str, Any]:
        with self._lock:
            job = self._jobs.get(request["ResourceArn"].lower())
            if job is None:
                raise _not_found()
            tags = copied(job.request.get("Tags", []))
        # At most 50 tags a resource, and 50 a page is the least that can be asked for: there is one page.
        return {"Tags": tags}

    def _stop(self, request: Parameters) -> dict[str, Any]:
        with self._lock:
            job = self._named(request["TrainingJobName"])
            if job.status in _ENDS:
                message = f"The request was rejected because the training job is in status {job.status}."
                refuse("ValidationException", message)
            if job.status == "InProgress":
                job.status = "Stopping"
                self._enter(job, "Stopping")
                self._clock.after(self.stop_seconds, lambda: self._end_of_stop(job))
        return {}

    # --- life ----------------------------------------------------------------------------------

    def _end_of_stop(self, job: _Job) -> None:
        with self._lock:
            if job.status == "Stopping":
                self._end(job, "Stopped", "Stopped", None)

    def _enter(self, job: _Job, secondary: str, message: str | None = None) -> None:
        now = self._clock.now()
        if job.transitions:
            job.transitions[-1].ended = now
        words = message if message is not None else _MESSAGES.get(secondary, f"Training job: {secondary}")
        job.transitions.append(_Transition(secondary, now, words))
        if secondary == "Downloading" and job.training_started is None:
            job.training_started = now
        self._announce(job)

    def _end(self, job: _Job, status: str, secondary: str, reason: str | None) -> None:
        job.status, job.reason = status, reason[:_REASON_MAX] if reason is not None else None
        now = self._clock.now()
        if job.training_started is not None:
            job.ended = now
        job.transitions[-1].ended = now
        job.transitions.append(_Transition(secondary, now, _MESSAGES.get(secondary, f"Training job: {secondary}"), now))
        self._announce(job)

    def _announce(self, job: _Job) -> None:
        detail = {
            **{name: job.request[name] for name in _IN_EVENTS if name in job.request},
            **job.state(epoch_milliseconds),
            "ResourceConfig": job.resources(),
            "SecondaryStatusTransitions": [entry.document(epoch_milliseconds) for entry in job.transitions],
            "ModelArtifacts": {"S3ModelArtifacts": job.artifacts} if job.uploaded else {},
            "Tags": job.request.get("Tags", []),
        }
        self._notifications.send("aws.sagemaker", "SageMaker Training Job State Change", job.arn, detail)

    def set_billable_seconds(self, name: str, seconds: int) -> None:
        """What is billed in the end, where that is not the training time: managed spot."""
        self._named(name).billable_seconds = seconds

    def describe_with(self, name: str, **members: Any) -> None:
        """From now on DescribeTrainingJob also answers these members for a job."""
        self._named(name).described.update(members)

    def lag(self, name: str) -> None:
        """From now on DescribeTrainingJob shows a job as it is now, until `catch_up`."""
        self._named(name).lagging = self._describe({"TrainingJobName": name})

    def catch_up(self, name: str) -> None:
        """DescribeTrainingJob shows a job as it is."""
        self._named(name).lagging = None

    def say(self, name: str, message: str) -> None:
        """Change the message of the present secondary status."""
        with self._lock:
            job = self._alive(name)
            job.transitions[-1].message = message
            self._announce(job)

    def _named(self, name: str) -> _Job:
        job = self._jobs.get((self._base + name).lower())
        if job is None:
            raise _not_found()
        return job

    def _alive(self, name: str) -> _Job:
        job = self._named(name)
        if job.status in _ENDS:
            message = f"{name} has ended as {job.status}: the test cannot move it on"
            raise AssertionError(message)
        return job


def _after(secondary: str) -> str:
    return _PHASES[_PHASES.index(secondary) + 1]


def _summary(job: _Job) -> dict[str, Any]:
    state = job.state(lambda at: at)
    row = {name: value for name, value in state.items() if name not in {"FailureReason", "TrainingStartTime"}}
    return {**row, **({"WarmPoolStatus": pool} if (pool := job.described.get("WarmPoolStatus")) else {})}


def _is_selected(job: _Job, request: Parameters) -> bool:
    return (
        request.get("NameContains", "").lower() in job.name.lower()
        and request.get("CreationTimeAfter", _EVER) < job.created
        and request.get("WarmPoolStatusEquals", _pool_status(job)) == _pool_status(job)
    )


def _pool_status(job: _Job) -> str | None:
    status: str | None = job.described.get("WarmPoolStatus", {}).get("Status")
    return status


def _position(token: str | None) -> int:
    if token is None:
        return 0
    if not token.isdecimal():
        refuse("ValidationException", "The token is not one that ListTrainingJobs gave.")
    return int(token)


def _not_found() -> AwsError:
    return AwsError("ValidationException", "Requested resource not found.")
