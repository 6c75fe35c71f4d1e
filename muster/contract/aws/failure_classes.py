"""Failure classes: why a training job ended. The one place where a status becomes a class.

Statuses and codes decide. The wording of a failure reason only chooses between classes that the status leaves open,
because AWS gives no code for the cause of a job's failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from muster.contract.aws.job_status import JobStatus
from muster.contract.exits import MORE_MEMORY, ReplicaExit, read_exit


class FailureClass(StrEnum):
    """Why an attempt did not succeed."""

    CAPACITY = "capacity"
    QUOTA = "quota"
    THROTTLE = "throttle"
    SPOT = "spot"
    INFRASTRUCTURE = "infrastructure"
    USER_CODE = "user-code"
    TIMEOUT = "timeout"
    STOPPED_BY_USER = "stopped-by-user"
    STOPPED_BY_MUSTER = "stopped-by-muster"
    INVALID_REQUEST = "invalid-request"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class JobEnd:
    """A terminal state of a training job as SageMaker reports it."""

    status: JobStatus
    secondary: str
    reason: str = ""


# Secondary statuses of an ended job, with the class they mean. A job with MaxRuntimeExceeded is Stopped, one with
# MaxWaitTimeExceeded is Stopped or Failed: neither was cancelled.
_SECONDARIES: dict[str, FailureClass] = {
    "MaxRuntimeExceeded": FailureClass.TIMEOUT,
    "MaxWaitTimeExceeded": FailureClass.SPOT,
    "Interrupted": FailureClass.SPOT,
    # Of jobs on a HyperPod cluster.
    "NodeFault": FailureClass.INFRASTRUCTURE,
    "HealthCheck": FailureClass.INFRASTRUCTURE,
    "Evicted": FailureClass.INFRASTRUCTURE,
    "Hang": FailureClass.INFRASTRUCTURE,
    "ClusterGone": FailureClass.INFRASTRUCTURE,
    "Preempted": FailureClass.CAPACITY,
    "StartupDeadlineExceeded": FailureClass.CAPACITY,
    "ImageError": FailureClass.INVALID_REQUEST,
    "DeadlineExceeded": FailureClass.TIMEOUT,
}
# AWS Batch's guide describes a Stopped job that timed out while it waited for capacity, but not its secondary status.
_PENDING = "MaxPending"

# The beginnings of FailureReason that SageMaker documents or that users report, the most specific first.
_REASONS: tuple[tuple[str, FailureClass], ...] = (
    ("capacityerror", FailureClass.CAPACITY),
    ("unable to provision requested ml compute capacity", FailureClass.CAPACITY),
    ("insufficient capacity", FailureClass.CAPACITY),
    ("insufficientinstancecapacity", FailureClass.CAPACITY),
    ("resourcelimitexceeded", FailureClass.QUOTA),
    ("account-level service limit", FailureClass.QUOTA),
    ("throttlingexception", FailureClass.THROTTLE),
    ("internalservererror", FailureClass.INFRASTRUCTURE),
    ("internal error", FailureClass.INFRASTRUCTURE),
    ("hardware failure", FailureClass.INFRASTRUCTURE),
    ("algorithmerror", FailureClass.USER_CODE),
    ("clienterror", FailureClass.INVALID_REQUEST),
)

# A ClientError that may not occur again: S3 or the registry throttled the request.
_TRANSIENT_CLIENT_ERRORS = ("rate exceeded", "throttlingexception", "slowdown", "please reduce your request rate")
# An AlgorithmError whose cause is the hardware: the driver's messages about a broken GPU.
_BROKEN_HARDWARE = ("uncorrectable ecc error", "gpu has fallen off the bus")

# A replica that was preempted and saved a checkpoint, or that was fenced, did not fail because of the user's code. One
# that a rule of `watch` has ended may train well on another machine, from its last checkpoint.
_EXITS: dict[ReplicaExit, FailureClass] = {
    ReplicaExit.BAD_INPUT: FailureClass.INVALID_REQUEST,
    ReplicaExit.RENDEZVOUS: FailureClass.INFRASTRUCTURE,
    ReplicaExit.FENCED: FailureClass.INFRASTRUCTURE,
    ReplicaExit.STOPPED: FailureClass.INFRASTRUCTURE,
    ReplicaExit.HANG: FailureClass.INFRASTRUCTURE,
    ReplicaExit.SLOW: FailureClass.INFRASTRUCTURE,
    ReplicaExit.LOSS: FailureClass.INFRASTRUCTURE,
    ReplicaExit.NO_ROUND: FailureClass.INFRASTRUCTURE,
    ReplicaExit.DIVERGENCE: FailureClass.INFRASTRUCTURE,
}

_REASON_MAX = 1_024  # DescribeTrainingJob: FailureReason
_KILLED = f" (most likely out of memory: {MORE_MEMORY})"

# CreateTrainingJob's error codes.
_REQUEST_ERRORS: dict[str, FailureClass] = {
    "ResourceLimitExceeded": FailureClass.QUOTA,
    "ThrottlingException": FailureClass.THROTTLE,
    "Throttling": FailureClass.THROTTLE,
    "TooManyRequestsException": FailureClass.THROTTLE,
    "RequestLimitExceeded": FailureClass.THROTTLE,
    "InternalFailure": FailureClass.INFRASTRUCTURE,
    "ServiceUnavailable": FailureClass.INFRASTRUCTURE,
    "CapacityError": FailureClass.CAPACITY,
    "ValidationException": FailureClass.INVALID_REQUEST,
    "ResourceNotFound": FailureClass.INVALID_REQUEST,
    "AccessDeniedException": FailureClass.INVALID_REQUEST,
    "AccessDenied": FailureClass.INVALID_REQUEST,
}


def classify_end(end: JobEnd, *, stopping: bool = False) -> FailureClass | None:
    """The failure class of a job's end; None where it succeeded.

    Args:
        stopping: whether its run was being stopped. SageMaker does not report who stopped a job.

    Raises:
        ValueError: the status is not terminal.
    """
    if not end.status.is_terminal:
        message = f"{end.status} is not a terminal job status"
        raise ValueError(message)
    if end.status is JobStatus.COMPLETED:
        return None
    if end.secondary in _SECONDARIES:
        return _SECONDARIES[end.secondary]
    if end.secondary.startswith(_PENDING):
        return FailureClass.CAPACITY
    if end.status is JobStatus.STOPPED:
        return FailureClass.STOPPED_BY_MUSTER if stopping else FailureClass.STOPPED_BY_USER
    return _classify_reason(end.reason)


def explained(end: JobEnd) -> str:
    """The reason of an end in SageMaker's words; for a killed process, also the likely cause and the remedy."""
    if end.status is JobStatus.FAILED and read_exit(end.reason) is ReplicaExit.KILLED:
        return f"{end.reason[: _REASON_MAX - len(_KILLED)]}{_KILLED}"
    return end.reason


def classify_request_error(code: str) -> FailureClass:
    """The class of a refused CreateTrainingJob, by its error code."""
    return _REQUEST_ERRORS.get(code, FailureClass.UNKNOWN)


def classify_cluster_refusal(status: int, message: str) -> FailureClass:
    """The class of a refused job on a cluster: the HTTP status decides, but a quota is refused like a missing right."""
    if status == 403 and "exceeded quota" in message:
        return FailureClass.QUOTA
    # 400 is also what an admission webhook answers, 404 a missing namespace.
    return FailureClass.INVALID_REQUEST if 400 <= status < 500 else FailureClass.UNKNOWN


def _classify_reason(reason: str) -> FailureClass:
    text = reason.casefold()
    for beginning, failure_class in _REASONS:
        if text.startswith(beginning):
            return _look_behind(failure_class, reason)
    return next((c for wording, c in _REASONS if wording in text), FailureClass.UNKNOWN)


def _look_behind(failure_class: FailureClass, reason: str) -> FailureClass:
    """The class of a reason that begins like one of `failure_class`: two beginnings have more than one cause."""
    text = reason.casefold()
    if failure_class is FailureClass.USER_CODE:
        broken = any(wording in text for wording in _BROKEN_HARDWARE)
        return FailureClass.INFRASTRUCTURE if broken else _classify_exit(reason)
    if failure_class is FailureClass.INVALID_REQUEST and any(item in text for item in _TRANSIENT_CLIENT_ERRORS):
        return FailureClass.THROTTLE
    return failure_class


def _classify_exit(reason: str) -> FailureClass:
    found = read_exit(reason)
    return FailureClass.USER_CODE if found is None else _EXITS.get(found, FailureClass.USER_CODE)
