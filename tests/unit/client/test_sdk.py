"""The SDK over an AWS in memory: starting, looking, waiting, cancelling, continuing, results."""

import getpass
import pickle
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest

from muster import Cancellation, Muster, MusterError, PickledSessionError, Run, RunState, RunStatus
from muster.client.client_errors import (
    NoPlanError,
    NoResultError,
    RunNotEndedError,
    UnansweredLaunchError,
    UnfinishedRunError,
    UnknownRunError,
    WaitTimeoutError,
)
from muster.client.launch.source_archive import pack
from muster.contract.errors import RunNameTakenError
from tests.memory import Fault, lost_answer, server_error
from tests.memory.clock import VirtualClock
from tests.memory.cloud import MemoryCloud
from tests.support.memory_client import muster_of

SPEC = {"name": "digits", "replicas": 2, "trainer": "package.module:train"}


@pytest.fixture
def cloud() -> MemoryCloud:
    """The client compares times of this AWS with its own clock."""
    return MemoryCloud(clock=VirtualClock(datetime.now(UTC)))


@pytest.fixture
def muster(cloud: MemoryCloud) -> Muster:
    return muster_of(cloud)


@pytest.fixture
def run(muster: Muster) -> Run:
    return muster.launch(SPEC)


def test_launching_the_same_again_is_the_same_run_and_another_is_refused(muster: Muster, run: Run) -> None:
    status = run.status()
    assert (run.name, status.state, len(status.replicas)) == ("digits", RunState.RUNNING, 2)
    assert muster.launch(SPEC).name == "digits"
    with pytest.raises(RunNameTakenError):
        muster.launch({**SPEC, "replicas": 3})


@pytest.mark.parametrize("ahead", [-3600, 0, 3600])
def test_a_launch_is_told_apart_from_its_repetition_by_the_time_of_aws(ahead: float) -> None:
    cloud = MemoryCloud(clock=VirtualClock(datetime.now(UTC) - timedelta(seconds=ahead)))
    muster = muster_of(cloud)
    assert not muster.launch(SPEC).joined
    cloud.clock.advance(60)
    assert muster.launch(SPEC).joined


def test_a_launch_whose_answer_is_lost_is_one_run_though_it_has_no_name(muster: Muster, cloud: MemoryCloud) -> None:
    nameless = {name: value for name, value in SPEC.items() if name != "name"}
    cloud.calls.inject(lost_answer("StartExecution"))
    run = muster.launch(nameless)
    assert (run.joined, [item.run for item in muster.list()]) == (False, [run.name])
    assert muster.launch({**nameless, "name": run.name}) == run
    # Nor is it known where the run cannot be looked up: the error names it, and so does an interruption.
    for fault, error in (
        (lost_answer("StartExecution"), UnansweredLaunchError),
        (Fault("StartExecution", KeyboardInterrupt(), after_effect=True), KeyboardInterrupt),
    ):
        cloud.calls.inject(fault, server_error("DescribeExecution"))
        with pytest.raises(error) as raised:
            muster.launch(nameless)
        cloud.calls.reset()
        newest = muster.list()[0].run
        says = " ".join([str(raised.value), *getattr(raised.value, "__notes__", ())])
        assert f"launching again with `--name {newest}` starts it at most once" in says
        assert muster.launch({**nameless, "name": newest}).name == newest
        cloud.clock.advance(1)
    assert len(muster.list()) == 3


def test_source_is_stored_once_and_anew_only_when_it_is_old(
    muster: Muster, cloud: MemoryCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("print('training')")

    def launched(name: str) -> tuple[int, str]:
        cloud.calls.reset()
        run = muster.launch({**SPEC, "name": name, "source_dir": str(tmp_path)})
        return cloud.calls.counts()["PutObject"], run.spec()["source_dir"]

    uri = f"s3://{cloud.bucket}/{pack(tmp_path).key}"
    assert [launched("a"), launched("b")] == [(1, uri), (0, uri)]
    monkeypatch.setattr("muster.client.aws.bucket_objects.REFRESH_DAYS", -1)
    assert launched("c") == (1, uri)


def test_a_cancelled_run_ends_as_stopped_and_so_does_the_continuation_in_its_place(run: Run) -> None:
    with pytest.raises(UnfinishedRunError, match="muster status digits --watch"):
        run.result()
    with pytest.raises(RunNotEndedError, match="muster cancel digits"):
        run.start_continuation()
    assert run.cancel().stopped == ("digits",)
    assert run.status().reason.endswith(f"cancelled by {getpass.getuser()}")
    assert run.wait(timeout=60).state is RunState.STOPPED
    with pytest.raises(NoResultError):
        run.result()
    continuation = run.start_continuation()
    assert run.cancel() == Cancellation(run="digits", stopped=(continuation.name,))
    assert continuation.status().state is RunState.STOPPED
    assert run.cancel().stopped == ()


def test_a_rerun_is_one_run_whoever_asks_and_whatever_answer_is_lost_and_none_of_somebody_else(
    muster: Muster, cloud: MemoryCloud, run: Run
) -> None:
    run.cancel()
    cloud.calls.inject(lost_answer("StartExecution"))
    with pytest.raises(MusterError):
        run.start_continuation()
    assert [muster.run("digits").start_continuation().name for _ in range(2)] == ["digits-x2"] * 2
    assert sorted(item.run for item in muster.list()) == ["digits", "digits-x2"]
    other = muster.launch({**SPEC, "name": "other"})
    other.cancel()
    muster.launch({**SPEC, "name": "other-x2", "replicas": 3})
    with pytest.raises(RunNameTakenError):
        other.start_continuation()


def test_a_rerun_is_the_run_that_the_policy_has_just_started() -> None:
    for ended in (True, False):
        muster = muster_of(MemoryCloud())
        run = muster.launch(SPEC)
        run.cancel()
        started = muster.launch({**SPEC, "name": "digits-x2", "resume_from": "digits", "max_runtime_seconds": 60})
        if ended:
            started.cancel()
        assert run.start_continuation().name == "digits-x2", ended


def test_a_run_that_aws_does_not_know_of_yet_is_asked_for_again_by_who_started_it(
    muster: Muster, cloud: MemoryCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", cloud.clock.sleep)
    monkeypatch.setattr("time.monotonic", cloud.clock.monotonic)
    cloud.workflow.unknown_seconds = 5
    assert muster.launch(SPEC).status().state is RunState.RUNNING
    assert muster.launch({**SPEC, "name": "other"}).cancel().stopped == ("other",)
    muster.launch({**SPEC, "name": "third"})
    with pytest.raises(UnknownRunError):
        muster_of(cloud).run("third").status()
    # It is not asked for without end.
    cloud.workflow.unknown_seconds, before = 3600, cloud.clock.monotonic()
    with pytest.raises(UnknownRunError):
        muster.run("third").status()
    assert 29 < cloud.clock.monotonic() - before < 32


def test_runs_and_stacks_are_equal_by_name_and_survive_pickle() -> None:
    named = Muster("Own", region="us-east-1")
    run = named.run("digits")
    same = pickle.loads(pickle.dumps(run))  # noqa: S301 - our own
    assert (same, hash(same), same.muster) == (run, hash(run), named)
    assert len({run, same, named.run("other"), Muster("Other", region="us-east-1").run("digits")}) == 3
    assert Muster("Own", region="eu-west-1") != named
    given = Muster("Own", boto3.Session(region_name="us-east-1"))
    assert given.run("digits") != run
    for unpicklable in (given, given.run("digits")):
        with pytest.raises(PickledSessionError):
            pickle.dumps(unpicklable)


def test_runs_are_shown_in_notebooks_and_so_is_what_went_wrong(muster: Muster, run: Run) -> None:
    assert "<p>digits: running, " in run._repr_html_()
    assert run._repr_html_().count("<td>not launched</td>") == 2
    assert "<td>digits</td><td>running</td>" in muster._repr_html_()
    assert "has no run named &#x27;&lt;b&gt;&#x27;" in muster.run("<b>")._repr_html_()


def test_a_wait_ends_in_time_and_leaves_the_run_alone(run: Run) -> None:
    seen: list[RunStatus] = []
    with pytest.raises(WaitTimeoutError):
        run.wait(timeout=0.02, progress=seen.append, poll_seconds=0.01)
    assert seen[-1].state is RunState.RUNNING


def test_a_wait_goes_on_through_an_outage(cloud: MemoryCloud, run: Run) -> None:
    outage = server_error("DescribeExecution", count=3)

    def cancel_then_cut_off(status: RunStatus) -> None:
        if status.state is RunState.RUNNING:
            run.cancel()
            cloud.calls.inject(outage)

    assert run.wait(timeout=60, progress=cancel_then_cut_off, poll_seconds=0.001).state is RunState.STOPPED
    assert outage.fired == 3


def test_a_list_goes_on_beyond_a_page_of_the_service_and_asks_for_no_more_than_it_shows(
    muster: Muster, cloud: MemoryCloud
) -> None:
    names = [f"digits-{number:03}" for number in range(104)]
    stepfunctions = cloud.client("stepfunctions")
    for name in names:
        started = stepfunctions.start_execution(stateMachineArn=cloud.workflow.machine_arn, name=name, input="{}")
        stepfunctions.stop_execution(executionArn=started["executionArn"])
        cloud.clock.advance(1)
    muster.launch(SPEC)
    cloud.calls.reset()
    assert [item.run for item in muster.list(limit=2)] == ["digits", names[-1]]
    assert [item.run for item in muster.list(RunState.STOPPED, limit=200)] == names[::-1]
    assert [item.run for item in muster.list(RunState.RUNNING)] == ["digits"]
    assert cloud.calls.counts()["ListExecutions"] == 4


def test_a_run_without_a_plan_has_no_page_and_says_why(muster: Muster, cloud: MemoryCloud, run: Run) -> None:
    cloud.workflow.fail("digits", "Muster.SpecError", "The spec has 1 problem")
    for show in (run.report, run.live_page().look):
        with pytest.raises(NoPlanError, match="SpecError"):
            show()


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}", "(" * 100_000 + ")" * 100_000])
def test_a_pattern_that_is_none_is_an_error_of_musters(muster: Muster, pattern: str) -> None:
    with pytest.raises(MusterError, match=r"^regex: found .*; not a valid regular expression: "):
        muster.run("digits").logs(regex=pattern)


@pytest.mark.parametrize("number", [sys.maxsize, 10**20])
def test_a_number_beyond_what_there_can_be_means_all(muster: Muster, cloud: MemoryCloud, run: Run, number: int) -> None:
    cloud.logs.write("muster-digits-r0-a1", "one", "two")
    assert [item.run for item in muster.list(limit=number)] == ["digits"]
    assert [line.message for line in run.logs(tail=number)] == ["one", "two"]
