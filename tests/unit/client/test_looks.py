"""What a look at a run costs, and that it shows what the control plane has recorded."""

from collections.abc import Callable

import pytest

from muster.client.client_errors import DeniedError, NoResultError, SameRunError, UnknownRunError
from muster.client.runs.event_log import EventKind
from muster.client.runs.live_page import compare_runs
from muster.client.runs.observer import Observer
from muster.client.runs.run_state import RunState
from muster.contract.layout import RunLayout
from muster.contract.run.attempt import Attempt, Transition
from muster.contract.run.result import Verdict
from muster.contract.run.roll_up import ReplicaEntry, RollUpShard, ranks_of, shard_count, shard_of
from muster.control.settle import finish_run
from tests.memory.harness import RUN, ControlHarness, budget
from tests.support.memory_client import client_of, muster_of, put
from tests.support.round_commits import commit_of


def training(rank: int, secondary: str = "Training") -> ReplicaEntry:
    steps = tuple(Transition(at="2026-11-21T09:00:00Z", secondary=name) for name in ("Starting", "Downloading"))
    job = f"muster-{RUN}-r{rank}-a1"
    attempt = Attempt(attempt=1, job=job, status="InProgress", secondary=secondary, history=steps)
    return ReplicaEntry(rank=rank, revision=4, attempts=(attempt,))


def started(harness: ControlHarness, replicas: int) -> None:
    """A run of so many replicas, all of which train."""
    harness.plan(replicas=replicas)
    for shard in range(shard_count(replicas)):
        write(harness, replicas, [training(rank) for rank in ranks_of(shard, replicas)])


def write(harness: ControlHarness, replicas: int, entries: list[ReplicaEntry]) -> None:
    key = RunLayout(RUN).roll_up_shard(shard_of(entries[0].rank, replicas))
    put(harness.cloud, key, RollUpShard(run=RUN, replicas=tuple(entries)).to_json())


def change(harness: ControlHarness, replicas: int, shards: int) -> None:
    for shard in range(shards):
        write(harness, replicas, [training(rank, "Uploading") for rank in ranks_of(shard, replicas)])


def commit(harness: ControlHarness, round_: int) -> None:
    put(harness.cloud, f"{RunLayout(RUN).commits}{round_:08d}.json", commit_of([0], run=RUN, round=round_).to_json())


def calls(harness: ControlHarness, look: Callable[[], object]) -> dict[str, int]:
    harness.cloud.calls.reset()
    look()
    return dict(harness.cloud.calls.counts())


def test_an_idle_look_takes_three_calls_and_each_change_one_more() -> None:
    idle = {"DescribeExecution": 1, "ListObjectsV2": 2}
    for replicas in (10, 1_000):
        with ControlHarness().installed() as harness:
            started(harness, replicas)
            observer = Observer(client_of(harness.cloud), RUN)
            assert calls(harness, observer.look) == {**idle, "GetObject": shard_count(replicas)}
            assert calls(harness, observer.look) == idle
            # TorchX and the executor make a new one for each question: what one has read, all share.
            assert calls(harness, Observer(observer._cloud, RUN).look) == idle
            commit(harness, 1)
            change(harness, replicas, 3)
            assert calls(harness, observer.look) == {**idle, "GetObject": 4}
            assert calls(harness, observer.look) == idle


def test_a_queued_run_is_looked_at_with_three_calls() -> None:
    with ControlHarness(cap=3).installed() as harness:
        for name in ("first", "second"):
            harness.plan(name, replicas=2)
            harness.admit(name)
        observer = Observer(client_of(harness.cloud), "second")
        assert calls(harness, observer.look) == {"DescribeExecution": 1, "ListObjectsV2": 1, "GetObject": 1}
        assert observer.look().behind == ("first",)


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
    handle = muster_of(harness.cloud).run(RUN)
    assert handle.result().verdict is Verdict.SUCCEEDED, "the result is still there"
    harness.executions.start(RUN, "{}")
    observer = Observer(client_of(harness.cloud), RUN)
    assert observer.look().replicas == ()
    harness.cloud.workflow.fail(RUN, "Muster.RunNameTakenError", "choose another name")
    status = observer.look()
    assert (status.state, status.replicas, status.round, status.page) == (RunState.FAILED, (), None, None)
    assert [item.kind for item in observer.event_log()] == [EventKind.RUN_STARTED, EventKind.RUN_ENDED]
    with pytest.raises(NoResultError, match="choose another name"):
        handle.result()


def test_a_client_expects_the_stacks_bucket_to_be_its_accounts(harness: ControlHarness) -> None:
    # The stack was deleted with its bucket, and another account has made one of that name.
    put(harness.cloud, RunLayout(RUN).result, b"forged")
    foreign = client_of(harness.cloud, account="999999999999")
    with pytest.raises(DeniedError):
        foreign.objects.read(RunLayout(RUN).result)
    assert client_of(harness.cloud).objects.read(RunLayout(RUN).result) == b"forged"


def test_two_runs_are_read_and_compared(harness: ControlHarness) -> None:
    harness.plan("one", kwargs={"rate": 0.1})
    harness.plan("two", kwargs={"rate": 0.2}, **{"continue": {"on": ["failed"], "max": 1}})
    client = client_of(harness.cloud)
    found = compare_runs(client, "one", "two")
    assert (found.a.run, found.b.run, found.a.state, found.comparable) == ("one", "two", "running", False)
    assert ("kwargs.rate", 0.1, 0.2) in [(one.field, one.a, one.b) for one in found.spec]
    with pytest.raises(SameRunError, match="one"):
        compare_runs(client, "one", "one")
    with pytest.raises(UnknownRunError, match="absent"):
        compare_runs(client, "one", "absent")
