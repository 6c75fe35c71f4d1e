"""What tests of the control plane do with a run: launch it, let its jobs end, end it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias, TypeVar

from muster.contract.layout import RunLayout
from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.result import Verdict
from muster.contract.run.roll_up import ReplicaEntry, RollUpShard
from muster.control.active_run import ActiveRun
from muster.control.clear_up import ExecutionEnded, clear_up
from muster.control.settle import Finished, finish_run
from muster.control.sweep import SweepRequest, Swept, sweep
from tests.memory import AwsError, Fault, throttle
from tests.memory.cloud import MemoryCloud
from tests.memory.harness import RUN, ControlHarness, budget

T = TypeVar("T")
Row: TypeAlias = Callable[..., AbstractContextManager[ControlHarness]]
"""The fixture `row`: with the name of a row, and the options of its cloud."""

AGAIN, BROKEN = "InternalServerError: again", "AlgorithmError: ExitCode 1"
"""Why jobs fail: a rerun follows, or the replica is lost."""
CONTINUED = {"continue": {"on": ["failed"], "max": 3}}
CANCELLED = Fence(verdict=Verdict.STOPPED, cause=FenceCause.EXECUTION_STOPPED, reason="cancelled", at="t")
QUORUM_LOST = Fence(verdict=Verdict.FAILED, cause=FenceCause.QUORUM_LOST, reason="replica 0 was lost", at="t")
LAMBDA_SECONDS = 855.0
"""Of 900; the rest is a reserve."""


class FunctionEndedError(BaseException):
    """The function has used up its time or its memory: no code of it runs any more."""


def found(value: T | None) -> T:
    """A value that must be there."""
    assert value is not None
    return value


def launched(harness: ControlHarness, replicas: int = 1, run: str = RUN, /, **fields: Any) -> ActiveRun:
    """Plan a run and launch its replicas."""
    planned = harness.plan(run, replicas=replicas, **fields)
    for rank in range(replicas):
        harness.arm(rank, run=run)
    return planned


def complete(harness: ControlHarness, rank: int = 0, attempt: int = 1, run: str = RUN) -> None:
    """Let a job complete, and react see it."""
    harness.cloud.training.complete(harness.job(rank, attempt, run))
    harness.deliver()


def fail(harness: ControlHarness, reason: str = BROKEN, rank: int = 0, attempt: int = 1, run: str = RUN) -> None:
    """Let a job fail, and react see it."""
    harness.cloud.training.fail(harness.job(rank, attempt, run), reason)
    harness.deliver()


def cut_off(harness: ControlHarness, status: str = "FAILED", run: str = RUN) -> ExecutionEnded:
    """End the execution of a run; the detail of the event that says so, which no function has got yet."""
    if status == "ABORTED":
        arn = harness.cloud.workflow.execution_arn(run)
        harness.cloud.client("stepfunctions").stop_execution(executionArn=arn)
    else:
        harness.cloud.workflow.fail(run, "States.Runtime", status=status)
    details = [event["detail"] for event in harness.cloud.notifications.drain() if event["source"] == "aws.states"]
    return ExecutionEnded.model_validate(details[-1])


def cleared(harness: ControlHarness, ended: ExecutionEnded, seconds: float = LAMBDA_SECONDS) -> bool:
    """Let stop get the event of an execution's end."""
    return clear_up(harness.plane, harness.plane.runs.find(ended.run), ended, budget(seconds))


def finished(harness: ControlHarness, run: str = RUN) -> Finished:
    """Do what the workflow's last task does."""
    return finish_run(harness.plane, harness.plane.runs.require(run), budget(LAMBDA_SECONDS))


def swept(harness: ControlHarness, seconds: float = LAMBDA_SECONDS, **fields: float) -> Swept:
    """Let the scheduled function look at everything."""
    return sweep(harness.plane, harness.executions, SweepRequest.model_validate(fields), budget(seconds))


def refuse(harness: ControlHarness, operation: str, seconds: float, error: AwsError | None = None) -> Fault:
    """Calls of an operation are throttled, or refused with `error`, for so many seconds from now on."""
    clock = harness.cloud.clock
    until = clock.monotonic() + seconds
    fault = throttle(operation, None, lambda _: clock.monotonic() < until)
    fault.error = error or fault.error
    harness.cloud.calls.inject(fault)
    return fault


def entries(cloud: MemoryCloud, run: str) -> dict[int, ReplicaEntry]:
    """The entries of a run's roll-up by rank. Not a call: the log of the calls does not have it."""
    objects, prefix = cloud.s3.objects(cloud.bucket), RunLayout(run).roll_up
    shards = (RollUpShard.from_json(found.body, key) for key, found in objects.items() if key.startswith(prefix))
    return {entry.rank: entry for shard in shards for entry in shard.replicas}


def create_job(harness: ControlHarness, name: str, **fields: Any) -> str:
    """Create a job like the last one that was asked for, past the functions."""
    request = {**harness.cloud.calls.of("CreateTrainingJob")[-1], "TrainingJobName": name, **fields}
    harness.cloud.client("sagemaker").create_training_job(**request)
    return name


def create_late_job(harness: ControlHarness, run: str = RUN, **fields: Any) -> str:
    """A job of the run that is created late: its launch, that of attempt 2, was given up before."""
    request = harness.cloud.calls.of("CreateTrainingJob")[-1]
    tags = [{**tag, "Value": "2"} if tag["Key"] == "muster:attempt" else tag for tag in request["Tags"]]
    return create_job(harness, harness.job(attempt=2, run=run), **{"Tags": tags, **fields})
