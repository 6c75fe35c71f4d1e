"""What befalls each run of a night: decided by the seed alone. Pure."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from muster.contract.run.result import Verdict
from muster.local.faults import (
    CallError,
    CapacityError,
    Crash,
    EventFault,
    Fault,
    LostInstance,
    QuotaError,
    SpotInterruption,
    throttled,
)

ROUNDS = 3
PAUSE_SECONDS = 0.4
_WORK_SECONDS = 3.0  # about how long a replica trains
_FAULTS_MAX = 3
_CALLER = "Muster-*"  # the stack's roles: what this program asks meets no fault


class Blow(StrEnum):
    """What is done to a run by this program itself."""

    CANCEL = "cancel"
    KILL_REPLICA = "kill -9 of a replica"
    KILL_FUNCTION = "kill -9 of a function"


FUNCTIONS = ("plan", "attempt", "react", "settle", "stop")
"""Those of which a process is killed."""


@dataclass(frozen=True)
class TimedBlow:
    """A blow, so long after the first job of the run trains; `target` is a rank or a function's name."""

    blow: Blow
    after_seconds: float
    target: str = ""


@dataclass
class PlannedRun:
    """One run of the night."""

    name: str
    replicas: int
    faults: list[Fault] = field(default_factory=list)
    blows: list[TimedBlow] = field(default_factory=list)
    spec: dict[str, object] = field(default_factory=dict)
    fatal: bool = False
    """Whether a replica is lost for good, so that the run must fail unless it is cancelled before."""

    @property
    def cancelled(self) -> bool:
        """Whether it is cancelled, unless it ends before."""
        return any(blow.blow is Blow.CANCEL for blow in self.blows)

    @property
    def verdicts(self) -> set[Verdict]:
        """The verdicts that can be true."""
        own = Verdict.FAILED if self.fatal else Verdict.SUCCEEDED
        return {own, Verdict.STOPPED} if self.cancelled else {own}


def plan_night(seed: int, runs: int, replicas: int, job_prefix: str) -> list[PlannedRun]:
    """The runs of a night, each with up to three faults."""
    return [_planned(random.Random(f"{seed}/{number}"), number, replicas, job_prefix) for number in range(1, runs + 1)]  # noqa: S311


def _planned(choice: random.Random, number: int, replicas: int, job_prefix: str) -> PlannedRun:
    run = PlannedRun(f"night-{number}", replicas)
    run.spec = {
        "name": run.name,
        "replicas": replicas,
        "trainer": "tests.soak.trainer:train",
        "kwargs": {"rounds": ROUNDS, "pause_seconds": PAUSE_SECONDS},
        "max_runtime_seconds": 600,
        "reruns": {
            # A process that is killed counts as the user's error.
            "user-code": {"max_reruns": 5},
            "infrastructure": {"max_reruns": 8},
            **{name: {"max_reruns": 8, "delay_seconds": 1} for name in ("capacity", "quota", "spot", "unknown")},
        },
    }
    if choice.random() < 0.2:
        # Its schedule must be gone in the morning.
        run.spec["launch_gate"] = {"replicas": 1, "within_seconds": 100}
    kinds = choice.sample(sorted(_KINDS), choice.randint(0, _FAULTS_MAX))
    for kind in kinds:
        _KINDS[kind](run, choice, job_prefix)
    return run


def _job(run: PlannedRun, choice: random.Random, prefix: str, attempt: str = "1") -> str:
    return f"{prefix}-{run.name}-r{choice.randrange(run.replicas)}-a{attempt}"


def _moment(choice: random.Random) -> float:
    return round(choice.uniform(0, _WORK_SECONDS), 2)


def _cancel(run: PlannedRun, choice: random.Random, _: str) -> None:
    run.blows.append(TimedBlow(Blow.CANCEL, _moment(choice)))


def _kill_replica(run: PlannedRun, choice: random.Random, _: str) -> None:
    run.blows.append(TimedBlow(Blow.KILL_REPLICA, _moment(choice), str(choice.randrange(run.replicas))))


def _kill_function(run: PlannedRun, choice: random.Random, _: str) -> None:
    run.blows.append(TimedBlow(Blow.KILL_FUNCTION, _moment(choice), choice.choice(FUNCTIONS)))


def _lose_instance(run: PlannedRun, choice: random.Random, prefix: str) -> None:
    run.faults.append(LostInstance(job=_job(run, choice, prefix), after_seconds=_moment(choice)))


def _interrupt(run: PlannedRun, choice: random.Random, prefix: str) -> None:
    run.spec |= {"spot": True, "max_wait_seconds": 900}
    run.faults.append(SpotInterruption(job=_job(run, choice, prefix), after_seconds=_moment(choice)))


def _lack_capacity(run: PlannedRun, choice: random.Random, prefix: str) -> None:
    run.faults.append(CapacityError(job=_job(run, choice, prefix, "*"), count=choice.randint(1, 3)))


def _lack_quota(run: PlannedRun, choice: random.Random, prefix: str) -> None:
    run.faults.append(QuotaError(job=_job(run, choice, prefix, "*"), count=choice.randint(1, 3)))


def _fail(run: PlannedRun, choice: random.Random, prefix: str) -> None:
    """A program that fails in every attempt."""
    run.fatal = True
    run.spec["reruns"] = {**dict(_reruns(run)), "user-code": {"max_reruns": 1}}
    run.faults.append(Crash(job=_job(run, choice, prefix, "*"), exit_code=3, count=None))


def _reruns(run: PlannedRun) -> Mapping[str, object]:
    found = run.spec["reruns"]
    assert isinstance(found, dict)
    return found


def _lose_events(run: PlannedRun, choice: random.Random, prefix: str) -> None:
    action = choice.choice(("drop", "duplicate", "delay", "reorder"))
    job = f"{prefix}-{run.name}-*"
    run.faults.append(EventFault(action=action, job=job, count=choice.randint(1, 6), seconds=_moment(choice) + 0.1))


_CALLS: Sequence[tuple[str, str]] = (
    ("sagemaker", "CreateTrainingJob"),
    ("sagemaker", "DescribeTrainingJob"),
    ("sagemaker", "ListTags"),
    ("sagemaker", "StopTrainingJob"),
    ("s3", "GetObject"),
    ("s3", "PutObject"),
)


def _break_calls(run: PlannedRun, choice: random.Random, _: str) -> None:
    service, operation = choice.choice(_CALLS)
    lost = choice.random() < 0.3
    code, status = ("InternalError", 500) if service == "s3" else ("InternalFailure", 500)
    run.faults.append(
        CallError(
            service=service,
            operation=operation,
            resource=f"*{run.name}[-/]*",
            caller=_CALLER,
            code=code,
            status=status,
            count=choice.randint(1, 8),
            after_effect=lost,
            disconnect=lost and choice.random() < 0.5,
        )
    )


def _throttle_calls(run: PlannedRun, choice: random.Random, _: str) -> None:
    service, operation = choice.choice(_CALLS)
    fault = throttled(service, operation, count=choice.randint(3, 15))
    run.faults.append(fault.model_copy(update={"resource": f"*{run.name}[-/]*", "caller": _CALLER}))


def _break_the_workflows_calls(run: PlannedRun, choice: random.Random, _: str) -> None:
    """Of whichever run is next: these calls do not name theirs."""
    service, operation = choice.choice(
        (
            ("states", "SendTaskSuccess"),
            ("states", "SendTaskFailure"),
            ("events", "PutEvents"),
            ("sagemaker", "ListTrainingJobs"),
        )
    )
    run.faults.append(CallError(service=service, operation=operation, count=choice.randint(1, 4), caller=_CALLER))


_KINDS: Mapping[str, Callable[[PlannedRun, random.Random, str], None]] = {
    "break calls": _break_calls,
    "break calls of the workflow": _break_the_workflows_calls,
    "cancel": _cancel,
    "fail": _fail,
    "interrupt": _interrupt,
    "kill a function": _kill_function,
    "kill a replica": _kill_replica,
    "lack capacity": _lack_capacity,
    "lack quota": _lack_quota,
    "lose an instance": _lose_instance,
    "lose events": _lose_events,
    "throttle calls": _throttle_calls,
}
