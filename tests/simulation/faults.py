"""What befalls calls: crashes, lost answers, late effects, slow ones, storms of refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

from tests.memory.calls import AwsError
from tests.simulation.draws import Draws
from tests.simulation.kernel import Kernel
from tests.simulation.simulated_aws import throttled

_SLOW_SECONDS = (0.3, 1.0, 3.0, 10.0, 40.0, 130.0)
_LATE_SECONDS = (1.0, 5.0, 30.0, 100.0, 400.0)
_LATE_CREATIONS = (0.0, *_LATE_SECONDS)
_STORMS = (
    ("sagemaker", "StopTrainingJob"),
    ("sagemaker", "ListTrainingJobs"),
    ("sagemaker", "DescribeTrainingJob"),
    ("sagemaker", "CreateTrainingJob"),
    ("sagemaker", "ListTags"),
    ("sagemaker", "*"),
    ("s3", "PutObject"),
    ("s3", "GetObject"),
    ("s3", "ListObjectsV2"),
    ("s3", "*"),
    ("stepfunctions", "SendTask*"),
    ("stepfunctions", "StartExecution"),
    ("stepfunctions", "*"),
    ("events", "PutEvents"),
    ("scheduler", "CreateSchedule"),
    ("sts", "AssumeRole"),
    ("kubernetes", "*"),
    ("kubernetes", "CreateJob"),
    ("kubernetes", "GetJob"),
    ("eks", "*"),
)
_STORM_STARTS = (0.0, 30.0, 100.0, 200.0, 300.0, 350.0, 400.0, 500.0, 700.0)
_STORM_SECONDS = (20.0, 60.0, 120.0, 300.0, 720.0, 1800.0)
# How often a kind of fault befalls a call, in a schedule that has it.
_RATES = (0.002, 0.01, 0.03)


@dataclass(frozen=True)
class Storm:
    """For a while a service refuses calls of an operation."""

    service: str
    operation: str
    error: AwsError
    begin: float
    end: float

    def covers(self, service: str, operation: str, seconds: float) -> bool:
        """Whether a call of this time is refused."""
        return self.begin <= seconds < self.end and service == self.service and fnmatchcase(operation, self.operation)


@dataclass(frozen=True)
class CallFault:
    """What befalls one call. `error` comes instead of the effect, or with `after_effect` instead of the answer."""

    before_seconds: float = 0.0
    after_seconds: float = 0.0
    crash: str | None = None
    error: AwsError | Exception | None = None
    after_effect: bool = False
    late_seconds: float | None = None
    strike: Callable[[], None] = lambda: None


class Faults:
    """The faults of one schedule."""

    def __init__(self, kernel: Kernel, draws: Draws, reach: Callable[[str], None]) -> None:
        self.reach = reach
        self._kernel = kernel
        self._draws = draws
        self.on_late: Callable[[str, Mapping[str, Any]], None] = lambda *_: None
        self._rates = [(kind, self._rate(kind)) for kind in _KINDS]
        self._total = sum(rate for _, rate in self._rates)
        self.storms = [storm for number in range(2) if (storm := self._storm(number)) is not None]
        self.none = CallFault()
        """Nothing befalls a call."""
        self._refused_next: set[str] = set()
        self._creates_late = draws.chance("late creations", 0.08)

    def _rate(self, kind: str) -> float:
        name = f"faults/{kind}"
        if self._draws.share(name) >= 0.3:  # most schedules have few kinds of faults, so that each comes by itself
            return 0.0
        return _RATES[int(self._draws.share(f"{name}/rate") * len(_RATES))]

    def _storm(self, number: int) -> Storm | None:
        name, draws = f"storm{number}", self._draws
        if draws.share(name) >= 0.25 or not draws.is_free(name):
            return None
        service, operation = _STORMS[int(draws.share(f"{name}/operation") * len(_STORMS))]
        begin = _STORM_STARTS[int(draws.share(f"{name}/begin") * len(_STORM_STARTS))]
        seconds = _STORM_SECONDS[int(draws.share(f"{name}/seconds") * len(_STORM_SECONDS))]
        error = AwsError("InternalFailure", "Please try again.", 500)
        if operation == "CreateTrainingJob" and draws.share(f"{name}/kind") < 0.4:
            error = AwsError("ResourceLimitExceeded", "The account-level service limit is 0 Instances")
        elif draws.share(f"{name}/kind") < 0.7:
            error = throttled(service)
        elif service == "s3":
            error = AwsError("ServiceUnavailable", "Please try again.", 503)
        draws.note(name, f"{service} {operation} answers {error.code} from {begin:.0f} s for {seconds:.0f} s")
        return Storm(service, operation, error, begin, begin + seconds)

    def refused_until(self, service: str, operation: str, since: float) -> float:
        """When the last storm over an operation ends that reaches past `since`."""
        return max(
            [
                since,
                *(one.end for one in self.storms if one.service == service and fnmatchcase(operation, one.operation)),
            ]
        )

    def pause(self, longest: float) -> float:
        """How long an SDK waits before its next try: jitter, the same in every replay."""
        return longest / 2

    def of_call(self, caller: Any, service: str, operation: str, parameters: Mapping[str, Any]) -> CallFault | None:
        """What befalls a call; None: nothing."""
        if not caller.meets_faults:
            return None
        for storm in self.storms:
            if storm.covers(service, operation, self._kernel.seconds):
                self.reach("a storm")
                return CallFault(error=storm.error)
        if (
            operation == "CreateTrainingJob"
            and (found := self._late_creation(caller, parameters["TrainingJobName"])) is not None
        ):
            return found
        if not self._total:
            return None
        name = self._draws.number(f"{caller.name}:{operation}")
        share = self._draws.share(name)
        if share >= self._total:
            return None
        for kind, rate in self._rates:
            if share < rate:
                if (
                    not self._draws.is_free(name)
                    or (found := self._made(kind, name, caller, service, parameters)) is None
                ):
                    return None
                self._draws.note(name, kind)
                self.reach("a conflict of S3" if kind == "conflict" else f"a {kind}" if kind == "late effect" else kind)
                return found
            share -= rate
        return None

    def _late_creation(self, caller: Any, job: str) -> CallFault | None:
        """A job that is created although its answer was lost: the worst that SageMaker can do to a replica."""
        if job in self._refused_next:
            self._refused_next.discard(job)
            return CallFault(error=AwsError("ResourceLimitExceeded", "The account-level service limit is 0 Instances"))
        name = self._draws.number(f"{caller.name}:late creation")
        if not self._creates_late or not self._draws.chance(name, 0.3):
            return None
        late = _LATE_CREATIONS[int(self._draws.share(f"{name}/size") * len(_LATE_CREATIONS))]
        # The next try may be refused, as if no try had ever got through.
        if self._draws.chance(f"{name}/refused", 0.5):
            self._refused_next.add(job)
        if late == 0.0:
            return CallFault(error=ReadTimeoutError(endpoint_url="sagemaker"), after_effect=True)
        return CallFault(error=ConnectTimeoutError(endpoint_url="sagemaker"), late_seconds=late)

    def _made(self, kind: str, name: str, caller: Any, service: str, parameters: Mapping[str, Any]) -> CallFault | None:
        draws = self._draws
        size = draws.share(f"{name}/size")
        slow = _SLOW_SECONDS[int(size * len(_SLOW_SECONDS))]
        match kind:
            case "slow before":
                return CallFault(before_seconds=slow)
            case "slow after":
                return CallFault(after_seconds=slow)
            case "crash before" | "crash after":
                if not caller.can_crash:
                    return None
                return CallFault(crash=kind.rpartition(" ")[2], strike=caller.crash)
            case "refused":
                error = throttled(service) if size < 0.5 else AwsError("InternalFailure", "Please try again.", 500)
                return CallFault(error=error)
            case "lost answer":
                error = AwsError("InternalFailure", "Please try again.", 500)
                if size < 0.5:
                    return CallFault(error=error, after_effect=True)
                return CallFault(error=ReadTimeoutError(endpoint_url=service), after_effect=True, after_seconds=30.0)
            case "late effect":
                late = _LATE_SECONDS[int(size * len(_LATE_SECONDS))]
                return CallFault(error=ConnectTimeoutError(endpoint_url=service), late_seconds=late)
            case "conflict":
                if service != "s3" or not {"IfMatch", "IfNoneMatch"} & parameters.keys() or "Body" not in parameters:
                    return None
                return CallFault(error=AwsError("ConditionalRequestConflict", "Conflict", 409))
        raise AssertionError(kind)

    def comes_late(self, operation: str, parameters: Mapping[str, Any]) -> None:
        """An effect comes now, after its answer was lost."""
        self.on_late(operation, parameters)


_KINDS = (
    "slow before",
    "slow after",
    "crash before",
    "crash after",
    "refused",
    "lost answer",
    "late effect",
    "conflict",
)
