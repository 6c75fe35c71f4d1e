"""Named faults against the whole control plane: the real functions and state machine, in virtual time.

Each test is one schedule of the simulation in which only the named fault befalls the run. The simulation's judge looks
at it as at every other schedule: nothing is lost, nothing is launched twice, no job outlives its run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.layout import RunLayout
from muster.contract.run.result import ReplicaOutcome, Result, Verdict
from muster.control.aws.clients import TRIES
from tests.memory.calls import AwsError
from tests.memory.harness import ControlHarness
from tests.simulation.faults import CallFault, Storm
from tests.simulation.functions import installed
from tests.simulation.lives import FATES, job_parts
from tests.simulation.world import User, World

SUCCEEDED, FAILED, STOPPED = ReplicaOutcome.SUCCEEDED, ReplicaOutcome.FAILED, ReplicaOutcome.STOPPED
CAPACITY, INFRASTRUCTURE = FailureClass.CAPACITY, FailureClass.INFRASTRUCTURE
THROTTLED = AwsError("ThrottlingException", "Rate exceeded")
FAILING = AwsError("InternalFailure", "Please try again.", 500)
QUOTA = AwsError("ResourceLimitExceeded", "The account-level service limit is 0 Instances")
SPEC: dict[str, Any] = {
    "trainer": "package.module:train",
    "image": "image:1",
    "instance_type": "ml.m5.large",
    "replicas": 1,
}
RUN = "one"


@dataclass
class OnCall:
    """What befalls the first `count` calls of an operation about a job, by a function."""

    operation: str
    make: Callable[[Any], CallFault]
    """From the invocation that calls."""
    job: str = ""
    count: int = 1
    fired: int = 0

    def strikes(self, operation: str, parameters: Mapping[str, Any]) -> bool:
        """Whether this call is met; it counts."""
        hit = self.fired < self.count and operation == self.operation
        hit = hit and self.job in str(parameters.get("TrainingJobName", ""))
        self.fired += hit
        return hit


@dataclass(frozen=True)
class Ended:
    """A run that has ended, with the world that it ended in."""

    world: World
    result: Result

    @property
    def status(self) -> str:
        """Of the execution."""
        return self.world.workflow.status(RUN)

    @property
    def classes(self) -> list[list[FailureClass | None]]:
        """The failure classes of each replica's attempts."""
        return [[attempt.failure_class for attempt in replica.attempts] for replica in self.result.replicas]

    @property
    def outcomes(self) -> list[ReplicaOutcome]:
        """Of each replica."""
        return [replica.outcome for replica in self.result.replicas]

    @property
    def jobs(self) -> dict[str, str]:
        """How each job ended, by rank and attempt."""
        return {f"r{life.rank}-a{life.attempt}": life.status for life in self.world.lives.jobs.values()}


def run(
    *faults: OnCall,
    fates: Mapping[str, str] | None = None,
    deliveries: Sequence[float] = (0.5,),
    storm: Storm | None = None,
    cancel_at: float | None = None,
    **fields: Any,
) -> Ended:
    """A run of `SPEC` with these fields, to its end.

    Args:
        faults: of calls.
        fates: how jobs end, by their rank and attempt, or by their rank; the others complete.
        deliveries: after how many seconds the event of each change is delivered.
        storm: what refuses calls for a while.
        cancel_at: when the execution is stopped.
        fields: of the spec.
    """
    world = World(0, ())
    scenario, given = world.scenario, fates or {}

    def fate(job: str) -> Any:
        _, _, rank, attempt = job_parts(job)
        return FATES[given.get(f"r{rank}-a{attempt}", given.get(f"r{rank}", "completes"))]

    def of_call(caller: Any, service: str, operation: str, parameters: Mapping[str, Any]) -> CallFault | None:
        if not caller.meets_faults:
            return None
        if storm is not None and storm.covers(service, operation, world.kernel.seconds):
            return CallFault(error=storm.error)
        return next((one.make(caller) for one in faults if one.strikes(operation, parameters)), None)

    def delivered(label: str) -> list[float]:
        if not any(delay < 1.0 for delay in deliveries):
            world.lost_events.append(label)
        return [*deliveries]

    def cancel() -> None:
        with suppress(ClientError):
            arn = world.workflow.execution_arn(RUN)
            world.cloud.client("stepfunctions").stop_execution(executionArn=arn)

    patched: dict[str, Any] = {"spec": lambda _: {**SPEC, **fields}, "fate": fate, "deliveries": delivered}
    vars(scenario).update(patched)
    vars(world.faults)["of_call"] = of_call
    world.faults.storms = [] if storm is None else [storm]
    with installed(world):
        if cancel_at is not None:
            world.kernel.spawn("a user", cancel, cancel_at, owner=User("a user"))
        world.run()
    assert world.violations == []
    assert [one for one in faults if one.fired < one.count] == []
    found = world.cloud.s3.peek("bucket", RunLayout(RUN).result)
    assert found is not None
    return Ended(world, Result.from_json(found.body, "result"))


def refused(error: AwsError) -> Callable[[Any], CallFault]:
    """The call is refused."""
    return lambda _: CallFault(error=error)


def creations(count: int) -> Storm:
    """CreateTrainingJob is throttled for so many seconds."""
    return Storm("sagemaker", "CreateTrainingJob", THROTTLED, 0.0, count)


# --- jobs that end ------------------------------------------------------------------------------------


def test_lost_instance_is_rerun_and_the_run_succeeds() -> None:
    ended = run(fates={"r0-a1": "infrastructure"})
    assert (ended.status, ended.classes) == ("SUCCEEDED", [[INFRASTRUCTURE, None]])
    assert ended.jobs == {"r0-a1": "Failed", "r0-a2": "Completed"}


def test_capacity_error_is_rerun_within_its_budget_and_ends_the_run_beyond_it() -> None:
    budget: dict[str, Any] = {"reruns": {"capacity": {"max_reruns": 2, "delay_seconds": 700}}}
    within = run(fates={"r0-a1": "capacity", "r0-a2": "capacity"}, **budget)
    assert (within.status, within.classes) == ("SUCCEEDED", [[CAPACITY, CAPACITY, None]])
    assert within.result.reruns == 2
    beyond = run(fates={"r0": "capacity"}, **budget)
    assert (beyond.status, beyond.classes) == ("FAILED", [[CAPACITY] * 3])
    assert "CapacityError" in beyond.result.reason


def test_quota_error_is_waited_out() -> None:
    budget: dict[str, Any] = {"reruns": {"quota": {"max_reruns": 5, "delay_seconds": 60}}}
    ended = run(OnCall("CreateTrainingJob", refused(QUOTA), count=2), **budget)
    assert (ended.status, ended.classes) == ("SUCCEEDED", [[FailureClass.QUOTA, FailureClass.QUOTA, None]])
    assert ended.jobs == {"r0-a3": "Completed"}


def test_spot_wait_that_runs_out_is_rerun() -> None:
    spot: dict[str, Any] = {"spot": True, "max_runtime_seconds": 3_600, "max_wait_seconds": 7_200}
    ended = run(fates={"r0-a1": "spot"}, **spot)
    assert (ended.status, ended.classes) == ("SUCCEEDED", [[FailureClass.SPOT, None]])


@pytest.mark.parametrize(
    ("fate", "failure_class"), [("user code", FailureClass.USER_CODE), ("time-out", FailureClass.TIMEOUT)]
)
def test_user_code_error_is_not_rerun_and_its_reason_arrives(fate: str, failure_class: FailureClass) -> None:
    ended = run(fates={"r0": fate})
    assert (ended.status, ended.classes) == ("FAILED", [[failure_class]])
    assert ended.result.replicas[0].attempts[0].reason in ended.result.reason


def test_loss_that_the_policy_allows_leaves_the_others_alone() -> None:
    ended = run(fates={"r1": "user code"}, replicas=3, on_replica_failure="continue", min_replicas=2)
    assert (ended.status, ended.outcomes) == ("SUCCEEDED", [SUCCEEDED, FAILED, SUCCEEDED])
    assert [life.stopped_by for life in ended.world.lives.jobs.values()] == [[], [], []]


def test_losses_below_the_quorum_stop_the_run() -> None:
    policy: dict[str, Any] = {"replicas": 3, "on_replica_failure": "continue", "min_replicas": 2}
    # The third has no capacity for long, and trains when the second one is lost.
    budget: dict[str, Any] = {"reruns": {"capacity": {"max_reruns": 1, "delay_seconds": 60}}}
    ended = run(fates={"r0": "user code", "r1": "user code", "r2-a1": "capacity"}, **policy, **budget)
    assert (ended.status, ended.outcomes) == ("FAILED", [FAILED, FAILED, STOPPED])
    assert "user-code" in ended.result.reason
    assert ended.jobs["r2-a2"] == "Stopped"


def test_partial_launch_stops_what_was_launched() -> None:
    never = OnCall("CreateTrainingJob", refused(QUOTA), job="-r2-", count=2)
    ended = run(never, replicas=3, reruns={"quota": {"max_reruns": 1, "delay_seconds": 60}})
    assert (ended.status, ended.outcomes) == ("FAILED", [STOPPED, STOPPED, FAILED])
    assert ended.jobs == {"r0-a1": "Stopped", "r1-a1": "Stopped"}


# --- events ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "deliveries",
    [
        pytest.param([0.5, 0.5, 0.5], id="each event three times"),
        pytest.param([0.5, 400.0], id="each event again, when the next attempt trains"),
        pytest.param([30.0], id="each event after the next one"),
    ],
)
def test_duplicate_event_launches_nothing_twice(deliveries: list[float]) -> None:
    ended = run(fates={"r0-a1": "infrastructure"}, deliveries=deliveries)
    assert (ended.status, ended.classes) == ("SUCCEEDED", [[INFRASTRUCTURE, None]])
    assert ended.world.cloud.counts["CreateTrainingJob"] == 2


def test_lost_event_is_repaired_by_rearming() -> None:
    """The token of each wait has expired by then, and a fresh one has replaced it."""
    ended = run(fates={"r0-a1": "infrastructure"}, deliveries=[])
    assert (ended.status, ended.classes) == ("SUCCEEDED", [[INFRASTRUCTURE, None]])
    assert ended.world.reached["re-armed: Launch the job and wait for its end"] == 2
    assert ended.world.cloud.counts["CreateTrainingJob"] == 2


# --- functions and their calls --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "calls"),
    [
        pytest.param(lambda _: CallFault(error=FAILING, after_effect=True), 2, id="the answer is lost"),
        pytest.param(lambda caller: CallFault(crash="after", strike=caller.crash), 1, id="the function dies"),
    ],
)
def test_crash_between_create_training_job_and_the_answer_is_adopted_on_retry(
    make: Callable[[Any], CallFault], calls: int
) -> None:
    ended = run(OnCall("CreateTrainingJob", make))
    assert (ended.status, ended.classes, ended.jobs) == ("SUCCEEDED", [[None]], {"r0-a1": "Completed"})
    assert ended.world.cloud.counts["CreateTrainingJob"] == calls


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(refused(FAILING), id="every try is refused"),
        pytest.param(lambda caller: CallFault(crash="before", strike=caller.crash), id="the function dies"),
    ],
)
def test_crash_between_the_decision_and_the_answer_to_the_workflow_is_repaired(
    make: Callable[[Any], CallFault],
) -> None:
    ended = run(OnCall("SendTaskSuccess", make, count=TRIES))
    assert (ended.status, ended.classes, ended.jobs) == ("SUCCEEDED", [[None]], {"r0-a1": "Completed"})


def test_throttling_storm_delays_but_loses_nothing() -> None:
    """It outlasts the tries of the function's client: the workflow sends the same attempts again."""
    ended = run(storm=creations(120), replicas=4, reruns={"throttle": {"max_reruns": 0}})
    assert (ended.status, ended.classes) == ("SUCCEEDED", [[None]] * 4)
    assert sorted(ended.jobs.values()) == ["Completed"] * 4
    assert ended.world.cloud.counts["CreateTrainingJob"] > 4 * TRIES


# --- stops ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "jobs"),
    [
        pytest.param(30.0, {}, id="during a launch that is tried again"),
        pytest.param(100.0, {"r0-a1": "Stopped", "r1-a1": "Stopped"}, id="during training"),
    ],
)
def test_stop_execution_leaves_no_job(seconds: float, jobs: dict[str, str]) -> None:
    ended = run(storm=creations(60) if not jobs else None, cancel_at=seconds, replicas=2)
    assert (ended.status, ended.jobs) == ("ABORTED", jobs)
    assert (ended.result.verdict, ended.result.reason) == (Verdict.STOPPED, "the execution was stopped")
    assert set(ended.outcomes) <= {STOPPED, ReplicaOutcome.NOT_LAUNCHED}


# --- within one attempt, without the workflow -----------------------------------------------------------


def test_spot_interruption_stays_within_the_attempt() -> None:
    with ControlHarness().installed() as harness:
        harness.plan(spot=True, max_runtime_seconds=3_600, max_wait_seconds=7_200)
        harness.arm()
        training, job = harness.cloud.training, harness.job()
        training.train(job)
        training.interrupt(job)
        training.train(job)
        training.complete(job)
        harness.deliver()
        assert harness.answer() == harness.decided()
        [attempt] = harness.record().attempts
        assert (attempt.failure_class, attempt.status) == (None, "Completed")
        statuses = [transition.secondary for transition in attempt.history]
        assert "Interrupted" in statuses
        assert statuses.count("Training") == 2


def test_tags_that_users_change_do_not_make_a_job_foreign() -> None:
    with ControlHarness().installed() as harness:
        harness.plan(tags={"owner": "me"})
        harness.arm()
        harness.cloud.training.complete(harness.job())
        event = harness.last_event(harness.job())
        assert event.Tags["owner"] == "me"
        harness.react(event.model_copy(update={"Tags": {**event.Tags, "owner": "ME"}}))
        assert harness.record().decision is not None
