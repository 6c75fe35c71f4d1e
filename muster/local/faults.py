"""Faults on demand: what can be asked for, and the book in which the service keeps them.

Every fault has a `count`, how often it may still strike (None: without end), and the book
counts how often it did, so that a test can assert that what it asked for really happened.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection
from fnmatch import fnmatchcase
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from muster.local.calls import Call


class _Fault(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    count: int | None = Field(default=1, ge=1)
    """How often it strikes; None for without end."""


class _JobFault(_Fault):
    job: str = "*"
    """Glob over training job names."""


class SpotInterruption(_JobFault):
    """Managed spot takes the instance: SIGTERM, grace, Interrupted, Restarting, the same job in a new process."""

    kind: Literal["spot-interruption"] = "spot-interruption"
    after_seconds: float = Field(default=0, ge=0)
    """Since the process started."""
    wait_seconds: float | None = Field(default=None, ge=0)
    """How long no new instance is found; counts towards MaxWaitTimeInSeconds. None: one phase."""


class LostInstance(_JobFault):
    """The instance is gone at once: in-job restart while RetryStrategy has attempts, else InternalServerError."""

    kind: Literal["lost-instance"] = "lost-instance"
    after_seconds: float = Field(default=0, ge=0)


class Crash(_JobFault):
    """The container's process ends with `exit_code` as if the user's code had crashed."""

    kind: Literal["crash"] = "crash"
    after_seconds: float = Field(default=0, ge=0)
    exit_code: int = Field(default=1, ge=1, le=255)


class CapacityError(_JobFault):
    """No instance is to be had: the job ends Failed with a CapacityError before its process starts."""

    kind: Literal["capacity-error"] = "capacity-error"


class SlowStart(_JobFault):
    """The job stays in Starting this much longer."""

    kind: Literal["slow-start"] = "slow-start"
    seconds: float = Field(gt=0)


class QuotaError(_JobFault):
    """CreateTrainingJob answers ResourceLimitExceeded."""

    kind: Literal["quota-error"] = "quota-error"


class CallError(_Fault):
    """A call at the endpoint answers an error, before it is carried out or after."""

    kind: Literal["call-error"] = "call-error"
    service: str = "*"
    """The signing name, a glob: sagemaker, s3, states, lambda, events, logs, sts, iam, cloudformation."""
    operation: str = "*"
    """Glob over operation names: CreateTrainingJob, PutObject."""
    resource: str = "*"
    """Glob over the resource: bucket/key, a REST path, or any string member of a JSON request."""
    caller: str = "*"
    """Glob over the caller: a role's name, `root`, `sagemaker.amazonaws.com` for the platform's own transfers."""
    code: str = "InternalFailure"
    message: str = "We encountered an internal error. Please try again."
    status: int = Field(default=500, ge=400, le=599)
    after_effect: bool = False
    """Carry the call out first: only its answer is lost."""
    disconnect: bool = False
    """Close the connection in the middle of the answer instead of sending the error."""


class RateLimit(_Fault):
    """A token bucket over matching calls: what finds it empty is throttled."""

    kind: Literal["rate-limit"] = "rate-limit"
    count: None = None
    service: str = "sagemaker"
    operation: str = "*"
    per_second: float = Field(gt=0)
    burst: int = Field(default=1, ge=1)


class EventFault(_JobFault):
    """A state-change event that is dropped, sent more than once, late, or after the job's next one."""

    kind: Literal["event"] = "event"
    action: Literal["drop", "duplicate", "delay", "reorder"]
    status: str = "*"
    """Glob over the event's TrainingJobStatus or SecondaryStatus."""
    seconds: float = Field(default=1.0, gt=0)
    """Delay; for reorder the longest wait for a next event."""
    copies: int = Field(default=2, ge=2)
    """How often a duplicated event is sent in all."""


Fault = Annotated[
    SpotInterruption
    | LostInstance
    | Crash
    | CapacityError
    | SlowStart
    | QuotaError
    | CallError
    | RateLimit
    | EventFault,
    Field(discriminator="kind"),
]
FAULT: TypeAdapter[Fault] = TypeAdapter(Fault)


class FaultReport(BaseModel):
    """One fault in the book, and how often it struck."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: int
    fault: Fault
    fired: int


FAULT_REPORTS: TypeAdapter[list[FaultReport]] = TypeAdapter(list[FaultReport])

_F = TypeVar("_F", bound=_Fault)


class _Entry:
    """A fault with its count, and a token bucket's level."""

    def __init__(self, identifier: int, fault: Fault) -> None:
        self.id = identifier
        self.fault = fault
        self.fired = 0
        self.tokens = float(fault.burst) if isinstance(fault, RateLimit) else 0.0
        self.filled_at = time.monotonic()

    @property
    def spent(self) -> bool:
        return self.fault.count is not None and self.fired >= self.fault.count

    def allows(self, limit: RateLimit) -> bool:
        """Take a token; False when there is none."""
        now = time.monotonic()
        self.tokens = min(limit.burst, self.tokens + (now - self.filled_at) * limit.per_second)
        self.filled_at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class FaultBook:
    """The faults of a service, in the order in which they were asked for. Thread-safe."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._identifiers = itertools.count(1)
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> FaultReport:
        """Write `fault` down."""
        with self._lock:
            entry = _Entry(next(self._identifiers), fault)
            self._entries[entry.id] = entry
            return _report(entry)

    def remove(self, identifier: int) -> bool:
        """Strike a fault out; False when there is none of that number."""
        with self._lock:
            return self._entries.pop(identifier, None) is not None

    def clear(self) -> None:
        """Strike all out."""
        with self._lock:
            self._entries.clear()

    def report(self) -> list[FaultReport]:
        """All faults, spent ones too."""
        with self._lock:
            return [_report(entry) for entry in self._entries.values()]

    def take(self, kind: type[_F], matches: Callable[[_F], bool]) -> _F | None:
        """The first fault of `kind` that is not spent and matches, counted as struck."""
        with self._lock:
            for entry in self._entries.values():
                if isinstance(entry.fault, kind) and not entry.spent and matches(entry.fault):
                    entry.fired += 1
                    return entry.fault
        return None

    def take_call(self, call: Call, caller: str, resources: Collection[str]) -> CallError | None:
        """The error that a call meets, if any; an empty token bucket is a ThrottlingException."""
        with self._lock:
            for entry in self._entries.values():
                fault = entry.fault
                if not isinstance(fault, CallError | RateLimit) or entry.spent:
                    continue
                if not (fnmatchcase(call.service, fault.service) and fnmatchcase(call.operation, fault.operation)):
                    continue
                if isinstance(fault, RateLimit):
                    if entry.allows(fault):
                        continue
                    entry.fired += 1
                    return throttled(call.service, call.operation)
                if fnmatchcase(caller, fault.caller) and any(fnmatchcase(name, fault.resource) for name in resources):
                    entry.fired += 1
                    return fault
        return None


def throttled(service: str, operation: str, count: int | None = 1) -> CallError:
    """What AWS answers to a call that comes too fast."""
    if service == "s3":
        return CallError(
            service=service,
            operation=operation,
            count=count,
            code="SlowDown",
            message="Please reduce your request rate.",
            status=503,
        )
    return CallError(
        service=service,
        operation=operation,
        count=count,
        code="ThrottlingException",
        message="Rate exceeded",
        status=400,
    )


def _report(entry: _Entry) -> FaultReport:
    return FaultReport(id=entry.id, fault=entry.fault, fired=entry.fired)
