"""Faults on demand: what can be asked for.

Every fault has a `count`, how often it may fire (None: without limit). The service counts how often it did, so that a
test can assert that the fault happened.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from muster.contract.document import Document


class FaultBase(BaseModel):
    """What every fault has. The commands of `muster faults` follow from the models."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    arguments: ClassVar[tuple[str, ...]] = ("job",)
    """The fields that are arguments of the command; all others are options."""

    count: int | None = Field(default=1, ge=1, description="How often it fires.")
    """None for no limit."""


class PlacedFault(FaultBase):
    """A fault of a cloud with several places. Every other one fires at home."""

    place: str = Field(default="*", description="Name of the place, or a glob.")


class _JobFault(PlacedFault):
    job: str = Field(default="*", description="Training job name, or a glob.")


class _ProcessFault(_JobFault):
    after_seconds: float = Field(default=0, ge=0, description="Seconds after the job's process started.")


class SpotInterruption(_ProcessFault):
    """Interrupt a managed spot job: SIGTERM, Interrupted, Restarting, the same job in a new process."""

    kind: Literal["spot-interruption"] = "spot-interruption"
    wait_seconds: float | None = Field(
        default=None, ge=0, description="Seconds without a new instance, part of MaxWaitTimeInSeconds; else one phase."
    )


class LostInstance(_ProcessFault):
    """Lose a job's instance: InternalServerError, or a restart while its RetryStrategy allows one."""

    kind: Literal["lost-instance"] = "lost-instance"


class Crash(_ProcessFault):
    """End a job's process with an exit code, as a crash of the user's code does."""

    kind: Literal["crash"] = "crash"
    exit_code: int = Field(default=1, ge=1, le=255, description="Exit code of the process.")


class CapacityError(_JobFault):
    """Fail a job with a CapacityError before its process starts."""

    kind: Literal["capacity-error"] = "capacity-error"


class SlowStart(_JobFault):
    """Keep a job longer in Starting."""

    kind: Literal["slow-start"] = "slow-start"
    seconds: float = Field(default=10.0, gt=0, description="How much longer it stays in Starting.")


class SmallVolume(_JobFault):
    """Give a job's volume fewer bytes for each of its VolumeSizeInGB, so that a test can fill it."""

    kind: Literal["small-volume"] = "small-volume"
    gigabyte_bytes: int = Field(gt=0, description="Bytes of the volume for each gigabyte of VolumeSizeInGB.")


class RuleIssue(_JobFault):
    """Let a rule of Debugger or the profiler find an issue in a job."""

    kind: Literal["rule-issue"] = "rule-issue"
    rule: str = Field(default="*", description="RuleConfigurationName, or a glob.")
    details: str = Field(default="RuleEvaluationConditionMet: found at step 100", description="StatusDetails.")


class QuotaError(_JobFault):
    """Refuse CreateTrainingJob with ResourceLimitExceeded."""

    kind: Literal["quota-error"] = "quota-error"


class CallError(PlacedFault):
    """Fail calls of any service, before their effect or after it."""

    arguments: ClassVar[tuple[str, ...]] = ("service", "operation")
    kind: Literal["call-error"] = "call-error"
    service: str = Field(default="*", description="Signing name, or a glob: s3, states, lambda, events, sagemaker.")
    operation: str = Field(default="*", description="Operation name, or a glob: CreateTrainingJob, PutObject.")
    resource: str = Field(default="*", description="Glob over bucket/key, REST path or string members of the request.")
    caller: str = Field(default="*", description="Glob over the caller: a role's name, root, sagemaker.amazonaws.com.")
    code: str = Field(default="InternalFailure", description="AWS error code.")
    message: str = Field(
        default="We encountered an internal error. Please try again.", description="Message of the error."
    )
    status: int = Field(default=500, ge=400, le=599, description="HTTP status.")
    after_effect: bool = Field(default=False, description="Execute the call, lose its answer.")
    disconnect: bool = Field(default=False, description="Close the connection in the middle of the answer.")


class RateLimit(PlacedFault):
    """Throttle matching calls by a token bucket: a call that finds it empty is refused."""

    kind: Literal["rate-limit"] = "rate-limit"
    count: None = None
    service: str = Field(default="sagemaker", description="Signing name, or a glob.")
    operation: str = Field(default="*", description="Operation name, or a glob.")
    per_second: float = Field(gt=0, description="Throttle all calls above this rate.")
    burst: int = Field(default=1, ge=1, description="Calls at once before the rate applies.")


class EventFault(_JobFault):
    """Drop, duplicate, delay or reorder a job's state-change events."""

    arguments: ClassVar[tuple[str, ...]] = ("action", "job")
    kind: Literal["event"] = "event"
    action: Literal["drop", "duplicate", "delay", "reorder"] = Field(description="What happens to an event.")
    status: str = Field(default="*", description="Glob over TrainingJobStatus or SecondaryStatus.")
    seconds: float = Field(default=1.0, gt=0, description="Delay; for reorder the longest wait for a next event.")
    copies: int = Field(default=2, ge=2, description="How often a duplicate is sent in all.")


class _ClusterJobFault(FaultBase):
    job: str = Field(default="*", description="Name of a job on the HyperPod cluster, or a glob.")
    after_seconds: float = Field(default=0, ge=0, description="Seconds after the job began to run.")


class _NodeFault(_ClusterJobFault):
    pod: int = Field(default=0, ge=0, description="Number of the job's pod whose node is meant.")


class LostNode(_NodeFault):
    """Lose the node of a pod on the HyperPod cluster: its processes end without notice, the node is replaced later."""

    kind: Literal["lost-node"] = "lost-node"


class FailedHealthCheck(_NodeFault):
    """Let the deep health check of a pod's node fail: the node is drained, and replaced or started again."""

    kind: Literal["failed-health-check"] = "failed-health-check"
    reboot: bool = Field(default=False, description="Start the node again instead of replacing it.")


class Preemption(_ClusterJobFault):
    """Let Kueue preempt a job of a queue on the HyperPod cluster: it is suspended, and resumed later."""

    kind: Literal["preemption"] = "preemption"
    seconds: float = Field(default=5.0, ge=0, description="How long it is not admitted again.")


class DeletedJob(_ClusterJobFault):
    """Delete a job on the HyperPod cluster, as a person does."""

    kind: Literal["deleted-job"] = "deleted-job"


class OperatorDown(_ClusterJobFault):
    """Stop the operator of the HyperPod cluster: nothing is reconciled until it is back."""

    kind: Literal["operator-down"] = "operator-down"
    seconds: float = Field(default=10.0, gt=0, description="How long it is down.")


class LostNotice(FaultBase):
    """Lose S3's event about a notice of a replica on the HyperPod cluster; the object is there."""

    arguments: ClassVar[tuple[str, ...]] = ("key",)
    kind: Literal["lost-notice"] = "lost-notice"
    key: str = Field(default="notices/*", description="Glob over the keys of notices.")


# Reason and message of a kube-apiserver for each code.
_KUBERNETES_ERRORS = {
    401: ("Unauthorized", "Unauthorized"),
    429: ("TooManyRequests", "Too many requests, please try again later."),
    500: ("InternalError", "Internal error occurred: etcdserver: request timed out"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "Timeout: request did not complete within the allotted timeout"),
}


class KubernetesError(FaultBase):
    """Fail calls of the Kubernetes API of an embedded cluster, before their effect or after it."""

    arguments: ClassVar[tuple[str, ...]] = ("verb", "resource")
    kind: Literal["kubernetes-error"] = "kubernetes-error"
    cluster: str = Field(default="*", description="Name of the EKS cluster, or a glob.")
    verb: str = Field(default="*", description="create, get, list, delete, or a glob.")
    resource: str = Field(default="*", description="Plural of the resource, or a glob: hyperpodpytorchjobs, pods.")
    namespace: str = Field(default="*", description="Namespace, or a glob.")
    name: str = Field(default="*", description="Name of the object, or a glob.")
    caller: str = Field(default="*", description="Glob over the caller: a role's name, root.")
    code: Literal[401, 429, 500, 503, 504] = Field(
        default=503, description="HTTP status: 401 is an expired token, 429 throttling."
    )
    retry_after: int | None = Field(default=None, ge=0, le=60, description="Seconds of the header Retry-After.")
    after_effect: bool = Field(default=False, description="Execute the call, lose its answer.")
    disconnect: bool = Field(default=False, description="Close the connection in the middle of the answer.")

    @property
    def reason(self) -> tuple[str, str]:
        """Reason and message of the answer."""
        return _KUBERNETES_ERRORS[self.code]


class _Outage(PlacedFault):
    count: int | None = Field(default=None, ge=1, description="After how many calls it ends.")
    place: str = Field(description="Name of a place, or a glob.")


class DarkRegion(_Outage):
    """Cut the region of a place off: no call goes in or out, and its events wait until the fault is removed."""

    arguments: ClassVar[tuple[str, ...]] = ("place",)
    kind: Literal["dark-region"] = "dark-region"
    silent_seconds: float = Field(default=0, ge=0, description="How long a call hangs before its connection ends.")


class Partition(_Outage):
    """Cut the regions of two places off from each other: calls end, events wait until the fault is removed."""

    arguments: ClassVar[tuple[str, ...]] = ("place", "other")
    kind: Literal["partition"] = "partition"
    other: str = Field(description="Name of the other place, or a glob.")
    silent_seconds: float = Field(default=0, ge=0, description="How long a call hangs before its connection ends.")


class SlowLink(_Outage):
    """Slow the link from one place to another down."""

    arguments: ClassVar[tuple[str, ...]] = ("place", "other")
    kind: Literal["slow-link"] = "slow-link"
    other: str = Field(description="Name of the place to which it leads, or a glob.")
    latency_seconds: float = Field(default=0, ge=0, description="How much longer a call and its answer take.")
    bytes_per_second: float | None = Field(default=None, gt=0, description="What all bytes on the link share.")


class Price(_Outage):
    """Give an instance type another price on demand in the region of a place; the newest one holds."""

    arguments: ClassVar[tuple[str, ...]] = ("place", "instance_type")
    kind: Literal["price"] = "price"
    instance_type: str = Field(description="Instance type: ml.g5.xlarge.")
    usd_per_hour: float = Field(gt=0, description="Dollars for an hour.")


Fault = Annotated[
    SpotInterruption
    | LostInstance
    | Crash
    | CapacityError
    | SlowStart
    | SmallVolume
    | RuleIssue
    | QuotaError
    | CallError
    | RateLimit
    | EventFault
    | LostNode
    | FailedHealthCheck
    | Preemption
    | DeletedJob
    | OperatorDown
    | LostNotice
    | KubernetesError
    | DarkRegion
    | Partition
    | SlowLink
    | Price,
    Field(discriminator="kind"),
]
FAULT: TypeAdapter[Fault] = TypeAdapter(Fault)


class FaultReport(Document):
    """One fault, and how often it fired."""

    id: int
    fault: Fault
    fired: int


FAULT_REPORTS: TypeAdapter[list[FaultReport]] = TypeAdapter(list[FaultReport])


THROTTLED = {
    "s3": ("SlowDown", "Please reduce your request rate.", 503),
    "lambda": ("TooManyRequestsException", "Rate Exceeded.", 429),
    "scheduler": ("ThrottlingException", "Rate exceeded", 429),
    "sns": ("Throttled", "Rate exceeded", 429),
    "cloudformation": ("Throttling", "Rate exceeded", 400),
    "iam": ("Throttling", "Rate exceeded", 400),
    "sts": ("Throttling", "Rate exceeded", 400),
}
"""Code, message and HTTP status of each service that differs from the others, by botocore's models and the pages on
common errors."""


def throttled(service: str, operation: str, count: int | None = 1) -> CallError:
    """The answer of AWS to a call above the rate limit."""
    code, message, status = THROTTLED.get(service, ("ThrottlingException", "Rate exceeded", 400))
    return CallError(service=service, operation=operation, count=count, code=code, message=message, status=status)
