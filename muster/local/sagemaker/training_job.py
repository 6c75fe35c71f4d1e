"""One training job: its request, its statuses over time, and the documents that describe it."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from muster.contract.aws.job_status import JobStatus
from muster.local.sagemaker.debug_rules import DebugRules
from muster.local.sagemaker.job_tree import instance_type
from muster.local.sagemaker.request_validation import members
from muster.local.sagemaker.service_errors import invalid
from muster.local.sagemaker.warm_pools import PoolStatus, WarmPool, keep_seconds, matches

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.type_defs import CreateTrainingJobRequestTypeDef

MAX_FAILURE_REASON = 1024  # DescribeTrainingJob: FailureReason
# The saving of managed spot depends on the market; with a fixed share the two figures differ.
_SPOT_BILLED_SHARE = 0.3
# The members of a request in a state-change event.
_EVENT_FIELDS = (
    "AlgorithmSpecification",
    "HyperParameters",
    "InputDataConfig",
    "OutputDataConfig",
    "ResourceConfig",
    "StoppingCondition",
    "RoleArn",
)


class Secondary(StrEnum):
    """SecondaryStatus: those of this service."""

    STARTING = "Starting"
    DOWNLOADING = "Downloading"
    TRAINING = "Training"
    INTERRUPTED = "Interrupted"
    RESTARTING = "Restarting"
    UPLOADING = "Uploading"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    MAX_RUNTIME_EXCEEDED = "MaxRuntimeExceeded"
    MAX_WAIT_TIME_EXCEEDED = "MaxWaitTimeExceeded"
    COMPLETED = "Completed"
    FAILED = "Failed"


NO_CAPACITY = "Insufficient capacity error from EC2 while launching instances, retrying!"
"""The message of Starting while there is no instance (SecondaryStatusTransition)."""
_MESSAGES = {
    Secondary.STARTING: "Preparing the instances for training",
    Secondary.DOWNLOADING: "Downloading the training image",
    Secondary.TRAINING: "Training image download completed. Training in progress.",
    Secondary.INTERRUPTED: "Training job interrupted: the managed spot training instance was reclaimed",
    Secondary.RESTARTING: "Preparing the instances for training to restart",
    Secondary.UPLOADING: "Uploading generated training model",
    Secondary.STOPPING: "Stopping the training job",
    Secondary.STOPPED: "Training job stopped",
    Secondary.MAX_RUNTIME_EXCEEDED: "Training job runtime exceeded MaxRuntimeInSeconds provided",
    Secondary.MAX_WAIT_TIME_EXCEEDED: "Training job wait time exceeded MaxWaitTimeInSeconds provided",
    Secondary.COMPLETED: "Training job completed",
    Secondary.FAILED: "Training job failed",
}


_WHILE_STOPPING = {Secondary.STOPPING, Secondary.UPLOADING}
# Secondary statuses of a spot job that has no instance, and is not billed.
_WITHOUT_INSTANCE = {Secondary.INTERRUPTED, Secondary.RESTARTING}
# Failures that leave the cluster as it was: those of the program and of its request.
_HARMLESS = ("AlgorithmError", "ClientError")


@dataclass
class _Transition:
    status: Secondary
    started: float
    message: str
    ended: float | None = None

    def document(self, unit: Callable[[float], float]) -> dict[str, object]:
        shown: dict[str, object] = {"Status": self.status, "StatusMessage": self.message}
        shown["StartTime"] = unit(self.started)
        if self.ended is not None:
            shown["EndTime"] = unit(self.ended)
        return shown


@dataclass(frozen=True)
class Change:
    """A status of a job, for an event."""

    job: str
    arn: str
    status: JobStatus
    secondary: Secondary
    detail: Mapping[str, object]


class Job:
    """A training job. Its own thread advances it while callers read it: every method locks."""

    def __init__(self, request: CreateTrainingJobRequestTypeDef, arn: str, emit: Callable[[Change], None]) -> None:
        self.request = request
        self.name: str = request["TrainingJobName"]
        self.arn = arn
        self.tags: dict[str, str] = {tag["Key"]: tag["Value"] for tag in request.get("Tags", [])}
        self.created = time.time()
        self.stop_requested = threading.Event()
        self.finished = threading.Event()
        self.metrics: dict[str, tuple[float, float]] = {}
        """Last value and its time (epoch seconds) by metric name."""
        self.is_warm = False
        """Whether it runs on the cluster that another job has kept."""
        self.rules = DebugRules(request, arn)
        keep = keep_seconds(request)
        self._pool = WarmPool(keep) if keep else None
        self._emit = emit
        self._lock = threading.RLock()
        self._status = JobStatus.IN_PROGRESS
        self._transitions: list[_Transition] = []
        self._training_started: float | None = None
        self._ended: float | None = None
        self._with_instance_since: float | None = None
        self._instance_seconds = 0.0
        self._modified = self.created
        self._is_stored = False
        self._failure_reason: str | None = None
        self.advance(Secondary.STARTING)

    @property
    def status(self) -> JobStatus:
        """TrainingJobStatus."""
        return self._status

    @property
    def modified(self) -> float:
        """LastModifiedTime, epoch seconds."""
        return self._modified

    @property
    def spot(self) -> bool:
        """Whether managed spot training was asked for."""
        return bool(self.request.get("EnableManagedSpotTraining"))

    def advance(self, secondary: Secondary) -> None:
        """Enter the next secondary status and emit it. A job that is stopping only uploads."""
        with self._lock:
            if self._status is JobStatus.STOPPING and secondary not in _WHILE_STOPPING:
                return
            self._enter(secondary)
            if secondary is Secondary.DOWNLOADING and self._training_started is None:
                self._training_started = self._modified
            self._emit(self._change())

    def say(self, message: str) -> None:
        """Change the message of the present secondary status, and emit it."""
        with self._lock:
            self._transitions[-1].message = message
            self._modified = time.time()
            self._emit(self._change())

    def take_pool(self, request: CreateTrainingJobRequestTypeDef) -> bool:
        """Whether a job with this request gets the cluster that this one has kept; it is then gone."""
        with self._lock:
            pool = self._pool
            if pool is None or pool.status is not PoolStatus.AVAILABLE or not matches(self.request, request):
                return False
            pool.take(request["TrainingJobName"])
            return True

    def keep_pool(self, seconds: int) -> None:
        """UpdateTrainingJob: keep the cluster for so long after the end; 0 ends the warm pool.

        Raises:
            ServiceError: the job has no warm pool, or has it no longer.
        """
        with self._lock:
            if self._pool is None:
                message = "The training job has no warm pool: its KeepAlivePeriodInSeconds is not set."
                raise invalid(message)
            self._pool.update(seconds)

    @property
    def pool_status(self) -> PoolStatus | None:
        """The status of its warm pool; None where it keeps none."""
        return None if self._pool is None else self._pool.status

    def request_stop(self) -> bool:
        """Begin to stop; False if the job has ended."""
        with self._lock:
            if self._status.is_terminal:
                return False
            if self._status is JobStatus.IN_PROGRESS:
                self.stopping()
            self.stop_requested.set()
            return True

    def stopping(self) -> None:
        """Enter Stopping."""
        with self._lock:
            self._status = JobStatus.STOPPING
            self.advance(Secondary.STOPPING)

    @property
    def output(self) -> str:
        """The URI below which the job's model and output are stored."""
        return f"{self.request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{self.name}/output"

    @property
    def artifacts(self) -> str:
        """The URI at which the model is stored once it is uploaded."""
        packed = self.request["OutputDataConfig"].get("CompressionType") != "NONE"
        return f"{self.output}/model.tar.gz" if packed else f"{self.output}/model/"

    def stored(self) -> None:
        """Record that the model is stored."""
        with self._lock:
            self._is_stored = True

    def end(self, status: JobStatus, secondary: Secondary, reason: str | None = None) -> None:
        """End the job. A job that is stopping cannot complete: it is Stopped."""
        with self._lock:
            if status is JobStatus.COMPLETED and self._status is JobStatus.STOPPING:
                status, secondary = JobStatus.STOPPED, Secondary.STOPPED
            self._status = status
            self._failure_reason = reason[:MAX_FAILURE_REASON] if reason else None
            self._enter(secondary)
            self._transitions[-1].ended = self._ended = self._modified
            if self._pool is not None:
                harmless = status is not JobStatus.FAILED or (reason or "").startswith(_HARMLESS)
                self._pool.retain(self._ended, healthy=harmless and self._training_started is not None)
            self._emit(self._change())
        self.finished.set()

    def describe(self) -> dict[str, object]:
        """The answer of DescribeTrainingJob; times in epoch seconds."""
        with self._lock:
            shown = _echoed(self.request)
            shown.update(self._state(unit=_seconds))
            # From the beginning, as the model requires it: it is no proof of a success.
            shown["ModelArtifacts"] = {"S3ModelArtifacts": self.artifacts}
            if self._training_started is not None and self._ended is not None:
                seconds = round(self._ended - self._training_started)
                shown["TrainingTimeInSeconds"] = seconds
                billed = round(self._instance_seconds * _SPOT_BILLED_SHARE)
                shown["BillableTimeInSeconds"] = billed if self.spot else seconds
            if self.metrics:
                shown["FinalMetricDataList"] = [
                    {"MetricName": name, "Value": value, "Timestamp": _seconds(at)}
                    for name, (value, at) in sorted(self.metrics.copy().items())
                ]
            return {**shown, **self._pool_document(), **self.rules.documents(), **self._mlflow_details()}

    def _pool_document(self) -> dict[str, object]:
        return {} if self._pool is None else {"WarmPoolStatus": self._pool.document()}

    def _mlflow_details(self) -> dict[str, object]:
        """The experiment and the run that SageMaker creates on the tracking server of the request."""
        config = self.request.get("MlflowConfig")
        if config is None or self._training_started is None:
            return {}
        experiment = hashlib.sha256(config.get("MlflowExperimentName", self.name).encode()).hexdigest()
        run = hashlib.sha256(self.arn.encode()).hexdigest()
        details = {"MlflowExperimentId": str(int(experiment[:8], 16)), "MlflowRunId": run[:32]}
        return {"MlflowDetails": details}

    def summary(self) -> dict[str, object]:
        """A row of ListTrainingJobs."""
        with self._lock:
            state = self._state(unit=_seconds)
            names = ("TrainingJobName", "TrainingJobArn", "CreationTime", "TrainingEndTime", "LastModifiedTime")
            row = {name: state[name] for name in (*names, "TrainingJobStatus", "SecondaryStatus") if name in state}
            return {**row, **self._pool_document()}

    def _enter(self, secondary: Secondary) -> None:
        now = time.time()
        if self._transitions:
            self._transitions[-1].ended = now
        self._transitions.append(_Transition(secondary, now, _MESSAGES[secondary]))
        self._modified = now
        self._note_instance(secondary, now)

    def _note_instance(self, secondary: Secondary, now: float) -> None:
        """Add up the seconds with an instance: those without one, between an interruption and a restart, are free."""
        since = self._with_instance_since
        if since is None:
            self._with_instance_since = now if secondary is Secondary.DOWNLOADING else None
        elif secondary in _WITHOUT_INSTANCE or self._status.is_terminal:
            self._instance_seconds += now - since
            self._with_instance_since = None

    def _change(self) -> Change:
        detail: dict[str, object] = {name: value for name, value in self.request.items() if name in _EVENT_FIELDS}
        detail.update(self._state(unit=_milliseconds))
        detail["ModelArtifacts"] = {"S3ModelArtifacts": self.artifacts} if self._is_stored else {}
        detail["Tags"] = [{"Key": key, "Value": value} for key, value in self.tags.items()]
        return Change(self.name, self.arn, self._status, self._transitions[-1].status, detail)

    def _resources(self) -> dict[str, object]:
        """ResourceConfig; once there is an instance, with the type that was chosen among the preferences."""
        resources = self.request["ResourceConfig"]
        if "InstancePreferences" not in resources or self._training_started is None:
            return {**resources}
        count = resources["InstancePreferences"][0].get("InstanceCount", resources.get("InstanceCount", 1))
        return {**resources, "SelectedInstanceType": instance_type(resources), "SelectedInstanceCount": count}

    def _state(self, unit: Callable[[float], float]) -> dict[str, object]:
        shown: dict[str, object] = {
            "TrainingJobName": self.name,
            "TrainingJobArn": self.arn,
            "TrainingJobStatus": self._status,
            "SecondaryStatus": self._transitions[-1].status,
            "CreationTime": unit(self.created),
            "LastModifiedTime": unit(self._modified),
            "SecondaryStatusTransitions": [entry.document(unit) for entry in self._transitions],
            "ResourceConfig": self._resources(),
        }
        if self._failure_reason is not None:
            shown["FailureReason"] = self._failure_reason
        if self._training_started is not None:
            shown["TrainingStartTime"] = unit(self._training_started)
            if self._ended is not None:
                shown["TrainingEndTime"] = unit(self._ended)
        return shown


def _echoed(request: CreateTrainingJobRequestTypeDef) -> dict[str, object]:
    """The members of the request that Describe repeats, with the defaults of the service."""
    known = members("DescribeTrainingJob")
    flags = {
        "EnableNetworkIsolation": False,
        "EnableInterContainerTrafficEncryption": False,
        "EnableManagedSpotTraining": False,
    }
    return {**flags, **{name: value for name, value in request.items() if name in known}}


def _seconds(at: float) -> float:
    return round(at, 3)


def _milliseconds(at: float) -> float:
    return int(at * 1000)
