"""What befalls calls: crashes, lost answers, late effects, slow ones, storms of refusals, services that hang."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import accumulate
from typing import Any

from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

from muster.control.aws.clients import READ_SECONDS
from tests.memory.calls import THROTTLED_BY, AwsError
from tests.simulation.draws import Draws
from tests.simulation.kernel import Kernel

_SLOW_SECONDS = (0.3, 1.0, 3.0, 10.0, 40.0, 130.0)
_LATE_SECONDS = (1.0, 5.0, 30.0, 100.0, 400.0)
_LATE_CREATIONS = (0.0, *_LATE_SECONDS)
_STORMS = tuple(
    (service, operation)
    for service, operations in (
        ("sagemaker", "StopTrainingJob ListTrainingJobs DescribeTrainingJob CreateTrainingJob ListTags *"),
        ("s3", "PutObject GetObject ListObjectsV2 *"),
        ("stepfunctions", "SendTask* StartExecution *"),
        ("events", "PutEvents"),
        ("scheduler", "CreateSchedule"),
        ("sts", "AssumeRole"),
        ("kubernetes", "* CreateJob GetJob"),
        ("eks", "*"),
        ("lambda", "*"),
    )
    for operation in operations.split()
)
_STORM_STARTS = (0.0, 30.0, 100.0, 200.0, 300.0, 350.0, 400.0, 500.0, 700.0)
_STORM_SECONDS = (20.0, 60.0, 120.0, 300.0, 720.0, 1800.0, 7200.0)
_FAILS = AwsError("InternalFailure", "Please try again.", 500)
NO_QUOTA = AwsError("ResourceLimitExceeded", "The account-level service limit is 0 Instances")
# How often a kind of fault befalls a call, in a schedule that has it.
_RATES = (0.002, 0.01, 0.03)

CONNECT_SECONDS = 9.0
"""For how long a call waits for a place that is silent: three tries."""


@dataclass(frozen=True)
class Storm:
    """For a while a service refuses calls of an operation, or hangs: without an error, it takes them and answers none.

    Lambda hangs for the workflow, whose invocations it does not answer.
    """

    service: str
    operation: str
    error: AwsError | None
    begin: float
    end: float

    def covers(self, service: str, operation: str, seconds: float) -> bool:
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


NOTHING = CallFault()


def throttled(service: str) -> AwsError:
    """The refusal of a call that comes too fast, as each service words it."""
    return THROTTLED_BY.get(service, AwsError("ThrottlingException", "Rate exceeded"))


class Faults:
    def __init__(self, kernel: Kernel, draws: Draws, reach: Callable[[str], None]) -> None:
        self.reach = reach
        self._kernel = kernel
        self._draws = draws
        self.on_late: Callable[[str, Mapping[str, Any]], None] = lambda *_: None
        self._rates = [self._rate(kind) for kind in _KINDS]
        self._total = sum(self._rates)
        self.storms = [storm for number in range(2) if (storm := self._storm(number)) is not None]
        self._refused_next: set[str] = set()
        self._creates_late = draws.chance("late creations", 0.08)

    def _rate(self, kind: str) -> float:
        name = f"faults/{kind}"
        if self._draws.share(name) >= 0.3:  # most schedules have few kinds of faults, so that each comes by itself
            return 0.0
        return self._draws.choose(f"{name}/rate", _RATES)

    def _storm(self, number: int) -> Storm | None:
        name, draws = f"storm{number}", self._draws
        if draws.share(name) >= 0.25 or not draws.is_free(name):
            return None
        service, operation = draws.choose(f"{name}/operation", _STORMS)
        begin, seconds = draws.choose(f"{name}/begin", _STORM_STARTS), draws.choose(f"{name}/seconds", _STORM_SECONDS)
        error: AwsError | None = _FAILS
        if service == "lambda" or draws.share(f"{name}/hangs") < 0.25:
            error = None
        elif operation == "CreateTrainingJob" and draws.share(f"{name}/kind") < 0.4:
            error = NO_QUOTA
        elif draws.share(f"{name}/kind") < 0.7:
            error = throttled(service)
        elif service == "s3":
            error = AwsError("ServiceUnavailable", "Please try again.", 503)
        shown = f"answers {error.code}" if error else "hangs"
        draws.note(name, f"{service} {operation} {shown} from {begin:.0f} s for {seconds:.0f} s")
        return Storm(service, operation, error, begin, begin + seconds)

    def refused_until(self, service: str, operation: str, since: float) -> float:
        """When the last storm over an operation ends that reaches past `since`."""
        ends = (one.end for one in self.storms if one.service == service and fnmatchcase(operation, one.operation))
        return max([since, *ends])

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
                return CallFault(error=storm.error) if storm.error else self._hung(caller, service)
        if operation == "CreateTrainingJob" and (late := self._late_creation(caller, parameters["TrainingJobName"])):
            return late
        if not self._total:
            return None
        name, draws = self._draws.number(f"{caller.name}:{operation}"), self._draws
        share = draws.share(name)
        if share >= self._total or not draws.is_free(name):
            return None
        kind = next(kind for kind, end in zip(_KINDS, accumulate(self._rates), strict=True) if share < end)
        found = self._made(kind, name, caller, service, parameters)
        if found is not None:
            draws.note(name, kind)
            self.reach("a conflict of S3" if kind == "conflict" else f"a {kind}" if kind == "late effect" else kind)
        return found

    def invokes(self, function: str) -> bool:
        """Whether Lambda invokes a function now, for the workflow."""
        return not any(storm.covers("lambda", function, self._kernel.seconds) for storm in self.storms)

    def _hung(self, caller: Any, service: str) -> CallFault:
        """A call without an answer. Perhaps it was carried out."""
        self.reach("a service hangs")
        done = self._draws.chance(self._draws.number(f"{caller.name}:{service}/hung"), 0.2)
        return CallFault(error=ReadTimeoutError(endpoint_url=service), after_effect=done, after_seconds=READ_SECONDS)

    def _late_creation(self, caller: Any, job: str) -> CallFault | None:
        """A job that is created although its answer was lost: the worst that SageMaker can do to a replica."""
        if job in self._refused_next:
            self._refused_next.discard(job)
            return CallFault(error=NO_QUOTA)
        name = self._draws.number(f"{caller.name}:late creation")
        if not self._creates_late or not self._draws.chance(name, 0.3):
            return None
        late = self._draws.choose(f"{name}/size", _LATE_CREATIONS)
        # The next try may be refused, as if no try had ever got through.
        if self._draws.chance(f"{name}/refused", 0.5):
            self._refused_next.add(job)
        if late == 0.0:
            return CallFault(error=ReadTimeoutError(endpoint_url="sagemaker"), after_effect=True)
        return CallFault(error=ConnectTimeoutError(endpoint_url="sagemaker"), late_seconds=late)

    def _made(self, kind: str, name: str, caller: Any, service: str, parameters: Mapping[str, Any]) -> CallFault | None:
        draws, sized = self._draws, f"{name}/size"
        match kind:
            case "slow before":
                return CallFault(before_seconds=draws.choose(sized, _SLOW_SECONDS))
            case "slow after":
                return CallFault(after_seconds=draws.choose(sized, _SLOW_SECONDS))
            case "crash before" | "crash after":
                if not caller.can_crash:
                    return None
                return CallFault(crash=kind.rpartition(" ")[2], strike=caller.crash)
            case "refused":
                return CallFault(error=draws.choose(sized, (throttled(service), _FAILS)))
            case "lost answer":
                if draws.share(sized) < 0.5:
                    return CallFault(error=_FAILS, after_effect=True)
                return CallFault(
                    error=ReadTimeoutError(endpoint_url=service), after_effect=True, after_seconds=READ_SECONDS
                )
            case "late effect":
                late = draws.choose(sized, _LATE_SECONDS)
                return CallFault(error=ConnectTimeoutError(endpoint_url=service), late_seconds=late)
            case "conflict":
                if service != "s3" or not {"IfMatch", "IfNoneMatch"} & parameters.keys() or "Body" not in parameters:
                    return None
                return CallFault(error=AwsError("ConditionalRequestConflict", "Conflict", 409))
        raise AssertionError(kind)


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
