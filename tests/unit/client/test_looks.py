"""What a look at a run costs, and that it shows what the control plane has recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import boto3
import pytest

from muster.client.errors import DeniedError, NoResultError
from muster.client.runs.event_log import EventKind
from muster.client.runs.live_page import PageSource
from muster.client.runs.observer import Observer
from muster.client.runs.run_state import RunState
from muster.client.sdk import Muster, Run
from muster.contract.layout import RunLayout
from muster.contract.run.attempt import Attempt, Transition
from muster.contract.run.commit import Commit, Member
from muster.contract.run.result import Verdict
from muster.contract.run.roll_up import ReplicaEntry, RollUpShard, ranks_of, shard_count, shard_of
from muster.control.admission import AdmitRequest, admit
from muster.control.finish import finish_run
from tests.memory.harness import RUN, ControlHarness, budget
from tests.support.memory_client import client_of

AGAIN = "InternalServerError: again"
SIZES = (10, 1_000, 10_000)


@pytest.fixture
def harness() -> Iterator[ControlHarness]:
    with ControlHarness().installed() as harness:
        yield harness


def training(rank: int, secondary: str = "Training") -> ReplicaEntry:
    steps = tuple(Transition(at="2026-11-21T09:00:00Z", secondary=name) for name in ("Starting", "Downloading"))
    job = f"muster-{RUN}-r{rank}-a1"
    attempt = Attempt(attempt=1, job=job, status="InProgress", secondary=secondary, history=steps)
    return ReplicaEntry(rank=rank, revision=4, attempts=(attempt,))


def put(harness: ControlHarness, key: str, body: bytes) -> None:
    harness.cloud.client("s3").put_object(Bucket=harness.cloud.bucket, Key=key, Body=body)


def started(harness: ControlHarness, replicas: int) -> None:
    """A run of so many replicas, all of which train."""
    harness.plan(replicas=replicas)
    for shard in range(shard_count(replicas)):
        write(harness, replicas, [training(rank) for rank in ranks_of(shard, replicas)])


def write(harness: ControlHarness, replicas: int, entries: list[ReplicaEntry]) -> None:
    key = RunLayout(RUN).roll_up_shard(shard_of(entries[0].rank, replicas))
    put(harness, key, RollUpShard(run=RUN, replicas=tuple(entries)).to_json())


def change(harness: ControlHarness, replicas: int, shards: int) -> None:
    for shard in range(shards):
        write(harness, replicas, [training(rank, "Uploading") for rank in ranks_of(shard, replicas)])


def commit(harness: ControlHarness, round_: int) -> None:
    member = Member(rank=0, attempt=1, incarnation=1, epoch=1, weight=1.0, checksum="0" * 8, metrics={})
    document = Commit(run=RUN, round=round_, committed_at="", count=1, members=(member,), epochs=(1,))
    put(harness, f"{RunLayout(RUN).commits}{round_:08d}.json", document.to_json())


def calls(harness: ControlHarness, look: Callable[[], object]) -> dict[str, int]:
    harness.cloud.calls.reset()
    look()
    return dict(harness.cloud.calls.counts())


@pytest.mark.parametrize("replicas", SIZES)
def test_an_idle_look_takes_three_calls_and_each_change_one_more(harness: ControlHarness, replicas: int) -> None:
    started(harness, replicas)
    observer = Observer(client_of(harness.cloud), RUN)
    idle = {"DescribeExecution": 1, "ListObjectsV2": 2}
    assert calls(harness, observer.look) == {**idle, "GetObject": shard_count(replicas)}
    assert calls(harness, observer.look) == idle
    commit(harness, 1)
    change(harness, replicas, 3)
    assert calls(harness, observer.look) == {**idle, "GetObject": 4}
    assert calls(harness, observer.look) == idle


@pytest.mark.parametrize("replicas", SIZES)
def test_a_page_takes_no_more_calls_than_a_status(harness: ControlHarness, replicas: int) -> None:
    started(harness, replicas)
    page = PageSource(client_of(harness.cloud), RUN)
    idle = {"DescribeExecution": 1, "ListObjectsV2": 2}
    assert calls(harness, page.look) == {**idle, "GetObject": shard_count(replicas) + 1}
    for round_ in (1, 2):
        commit(harness, round_)
    change(harness, replicas, 2)
    assert calls(harness, page.look) == {**idle, "GetObject": 4}
    assert calls(harness, page.look) == idle


def test_observers_of_one_client_share_what_they_have_read(harness: ControlHarness) -> None:
    """TorchX and the executor make a new one for each question."""
    started(harness, 1_000)
    cloud = client_of(harness.cloud)
    Observer(cloud, RUN).look()
    assert calls(harness, Observer(cloud, RUN).look) == {"DescribeExecution": 1, "ListObjectsV2": 2}


def test_a_queued_run_is_looked_at_with_three_calls() -> None:
    with ControlHarness(cap=3).installed() as harness:
        for name in ("first", "second"):
            harness.plan(name, replicas=2)
            admit(harness.plane, AdmitRequest(run=name, token=harness.cloud.workflow.token(name)))
        observer = Observer(client_of(harness.cloud), "second")
        assert calls(harness, observer.look) == {"DescribeExecution": 1, "ListObjectsV2": 1, "GetObject": 1}
        assert observer.look().behind == ("first",)


def test_a_run_of_an_older_version_shows_its_rounds_before_it_has_a_roll_up(harness: ControlHarness) -> None:
    harness.plan()
    commit(harness, 7)
    assert Observer(client_of(harness.cloud), RUN).look().round == 7


def test_a_run_that_was_refused_because_an_old_run_has_its_name_shows_nothing_of_that_run(
    harness: ControlHarness,
) -> None:
    """Step Functions frees a name 90 days after the end of its execution; the documents of the run stay."""
    run = harness.plan()
    harness.arm()
    commit(harness, 7)
    harness.cloud.training.complete(harness.job())
    harness.deliver()
    finish_run(harness.plane, run, budget())
    harness.cloud.workflow.succeed(RUN)
    harness.cloud.clock.advance(91 * 86_400)
    stack = Muster(session=boto3.Session(region_name="eu-west-1"))
    vars(stack)["_cloud"] = client_of(harness.cloud)
    handle = Run(stack, RUN)
    # Step Functions knows nothing of the run any more; its result is still there.
    assert handle.result().verdict is Verdict.SUCCEEDED
    harness.executions.start(RUN, "{}")
    observer = Observer(client_of(harness.cloud), RUN)
    assert observer.look().replicas == ()
    harness.cloud.workflow.fail(RUN, "Muster.RunNameTakenError", "choose another name")
    status = observer.look()
    assert (status.state, status.replicas, status.round, status.page) == (RunState.FAILED, (), None, None)
    assert status.reason == "Muster.RunNameTakenError: choose another name"
    assert [item.kind for item in observer.event_log()] == [EventKind.RUN_STARTED, EventKind.RUN_ENDED]
    with pytest.raises(NoResultError, match="choose another name"):
        handle.result()


def test_a_life_is_seen_without_a_call_of_sagemaker(harness: ControlHarness) -> None:
    run = harness.plan(replicas=2, reruns={"infrastructure": {"max_reruns": 1, "delay_seconds": 0}})
    observer = Observer(client_of(harness.cloud), RUN)
    seen = []

    def look() -> None:
        status = observer.look()
        seen.append([(one.attempt, one.status, one.secondary) for one in status.replicas])

    look()
    for rank in range(2):
        harness.arm(rank)
    look()
    harness.deliver()
    look()
    harness.cloud.training.fail(harness.job(0), AGAIN)
    harness.cloud.training.complete(harness.job(1))
    harness.deliver()
    look()
    harness.arm(0, 2)
    harness.cloud.training.complete(harness.job(0, 2))
    harness.deliver()
    harness.cloud.workflow.succeed(RUN)
    finish_run(harness.plane, run, budget())
    harness.cloud.calls.reset()
    look()
    assert observer.look().state is RunState.SUCCEEDED
    assert len(observer.event_log()) == 18
    assert not {call.operation for call in harness.cloud.calls.log if call.service == "sagemaker"}
    assert seen == [
        [],  # the input of an execution in memory is empty
        [(1, None, ""), (1, None, "")],
        [(1, "InProgress", "Starting")] * 2,
        # The end of an attempt is written with the attempt that follows at once.
        [(1, "InProgress", "Starting"), (1, "Completed", "Completed")],
        [(2, "Completed", "Completed"), (1, "Completed", "Completed")],
    ]


def test_a_client_expects_the_stacks_bucket_to_be_its_accounts(harness: ControlHarness) -> None:
    # The stack was deleted with its bucket, and another account has made one of that name.
    put(harness, RunLayout(RUN).result, b"forged")
    foreign = client_of(harness.cloud, account="999999999999")
    with pytest.raises(DeniedError):
        foreign.objects.read(RunLayout(RUN).result)
    assert client_of(harness.cloud).objects.read(RunLayout(RUN).result) == b"forged"
