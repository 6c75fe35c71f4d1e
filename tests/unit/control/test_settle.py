"""Settle: what came of every replica, weighed and written down once."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.errors import NewerDocumentError
from muster.contract.run.attempt import Attempt
from muster.contract.run.commit import Commit, Finish, Member
from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.finding import Finding, FindingDocument
from muster.contract.run.pace import Pace
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.contract.run.run_document import Manifest
from muster.contract.run.run_events import run_ended
from muster.contract.spec.own_loop import OWN_LOOP, own_loop_kwargs
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.spec.watch_rules import Rule
from muster.control import settle as settle_module
from muster.control.active_run import ActiveRun
from muster.control.finish import finish_run
from muster.control.runtime import clock
from muster.control.runtime.parallel import OutOfTimeError
from muster.control.settle import settle, weigh
from tests.memory import AwsError, Fault, throttle
from tests.memory.harness import RUN, SPEC, ControlHarness, budget

BROKEN = "AlgorithmError: ExitCode 1"
CANCELLED = Fence(verdict=Verdict.STOPPED, cause=FenceCause.EXECUTION_STOPPED, reason="cancelled", at="t")
QUORUM = Fence(verdict=Verdict.FAILED, cause=FenceCause.QUORUM_LOST, reason="replica 0 was lost", at="t")

MUSTER_FAILED = Fence(
    verdict=Verdict.FAILED, cause=FenceCause.EXECUTION_FAILED, reason="the execution ended as FAILED", at="t"
)


def complete(harness: ControlHarness, rank: int = 0, checksum: str | None = None) -> None:
    """Launch a replica and let it succeed; `checksum`: of the parameters in its manifest, where it leaves one."""
    harness.arm(rank)
    if checksum is not None:
        manifest = Manifest(checkpoint_s3_bucket="s3://bucket/final", round=7, checksum=checksum, metrics={"loss": 1.0})
        harness.plane.store.create(f"output/{RUN}/{harness.job(rank)}/manifest.json", manifest.to_json())
    harness.cloud.training.complete(harness.job(rank))
    harness.deliver()


def fail(harness: ControlHarness, rank: int = 0) -> None:
    harness.arm(rank)
    harness.cloud.training.fail(harness.job(rank), BROKEN)
    harness.deliver()


def settled(run: ActiveRun, seconds: float = 600.0) -> Result:
    return settle(run, budget(seconds))


def outcomes(result: Result) -> list[str]:
    return [replica.outcome.value for replica in result.replicas]


# --- the verdict ----------------------------------------------------------------------------------


def replicas(*outcomes: ReplicaOutcome) -> list[ReplicaResult]:
    attempt = Attempt(attempt=1, job="job", reason="why")
    return [ReplicaResult(rank=rank, outcome=one, attempts=(attempt,)) for rank, one in enumerate(outcomes)]


S, F, X = ReplicaOutcome.SUCCEEDED, ReplicaOutcome.FAILED, ReplicaOutcome.STOPPED


@pytest.mark.parametrize(
    ("found", "fence", "verdict", "reason"),
    [
        ((S, S, S), None, Verdict.SUCCEEDED, "3 of 3 replicas succeeded"),
        ((S, S, F), None, Verdict.SUCCEEDED, "2 of 3 replicas succeeded"),
        ((F, S, F), None, Verdict.FAILED, "1 of 3 replicas succeeded; 2 were needed; replica 0: why"),
        ((X, S, X), None, Verdict.FAILED, "1 of 3 replicas succeeded; 2 were needed"),
        ((S, S, S), CANCELLED, Verdict.SUCCEEDED, "3 of 3 replicas succeeded"),
        ((S, S, X), CANCELLED, Verdict.STOPPED, "cancelled"),
        ((S, S, F), QUORUM, Verdict.FAILED, "replica 0 was lost"),
        # Muster itself has failed: after all replicas had ended, and while one was still at work.
        ((S, S, F), MUSTER_FAILED, Verdict.SUCCEEDED, "2 of 3 replicas succeeded"),
        ((F, S, F), MUSTER_FAILED, Verdict.FAILED, "1 of 3 replicas succeeded; 2 were needed; replica 0: why"),
        ((S, S, X), MUSTER_FAILED, Verdict.FAILED, "the execution ended as FAILED"),
    ],
)
def test_the_verdict_follows_from_the_outcomes_and_the_fence(
    found: tuple[ReplicaOutcome, ...], fence: Fence | None, verdict: Verdict, reason: str
) -> None:
    spec = parse_spec({**SPEC, "replicas": 3, "min_replicas": 2, "on_replica_failure": "continue"})
    assert weigh(spec, replicas(*found), fence) == (verdict, reason)


# --- a run that came to its end -------------------------------------------------------------------


def test_a_run_whose_replicas_have_succeeded(harness: ControlHarness) -> None:
    run = harness.plan(replicas=2)
    for rank in range(2):
        complete(harness, rank, checksum="ab" * 32)
    result = settled(run)
    assert (result.verdict, outcomes(result), result.reruns) == (Verdict.SUCCEEDED, ["succeeded"] * 2, 0)
    first = result.replicas[0]
    assert (first.round, first.checksum, first.metrics) == (7, "ab" * 32, {"loss": 1.0})
    assert first.checkpoint_uri == "s3://bucket/final"
    assert first.artifacts == "s3://bucket/output/one/muster-one-r0-a1/output/model.tar.gz"
    assert result.parameters_identical is True
    assert harness.result() == result


@pytest.mark.parametrize(
    ("checksums", "identical"), [(("ab", "cd"), False), (("ab", None), None), ((None, None), None)]
)
def test_whether_the_replicas_hold_the_same_parameters(
    harness: ControlHarness, checksums: tuple[str | None, ...], identical: bool | None
) -> None:
    run = harness.plan(replicas=2)
    for rank, checksum in enumerate(checksums):
        complete(harness, rank, checksum and checksum * 32)
    assert settled(run).parameters_identical is identical


def test_a_missing_manifest_is_a_problem_and_no_failure(harness: ControlHarness) -> None:
    run = harness.plan()
    complete(harness)
    result = settled(run)
    [replica] = result.replicas
    assert (result.verdict, replica.checkpoint_uri, replica.round) == (Verdict.SUCCEEDED, None, None)
    assert replica.problem is not None
    assert "the job wrote no manifest" in replica.problem


def test_a_trainer_with_its_own_loop_need_not_leave_a_manifest(harness: ControlHarness) -> None:
    run = harness.plan(trainer=OWN_LOOP, kwargs=own_loop_kwargs("m:train", {}))
    complete(harness)
    [replica] = settled(run).replicas
    assert (replica.outcome, replica.problem) == (ReplicaOutcome.SUCCEEDED, None)
    assert str(replica.artifacts).endswith(f"{harness.job()}/output/model.tar.gz")


def _looked_at(harness: ControlHarness) -> list[str]:
    return [key for call in harness.cloud.calls.of("GetObject") if (key := call["Key"]).startswith("output/")]


PROGRAM = {"entrypoint": ["python", "-c", "pass"], "trainer": None}


def test_the_outputs_of_programs_are_listed_once_instead_of_looked_for(harness: ControlHarness) -> None:
    run = harness.plan(replicas=2, **PROGRAM)
    complete(harness, 0, checksum="ab" * 32)
    complete(harness, 1)
    harness.cloud.calls.reset()
    first, second = settled(run).replicas
    assert first.checksum == "ab" * 32
    assert "the job wrote no manifest" in (second.problem or "")
    assert _looked_at(harness) == [f"output/{RUN}/{harness.job()}/manifest.json"]


@pytest.mark.parametrize("fault", [None, Fault("ListObjectsV2", AwsError("AccessDenied", status=403))])
def test_outputs_that_are_many_or_cannot_be_listed_are_looked_for(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch, fault: Fault | None
) -> None:
    run = harness.plan(**PROGRAM)
    complete(harness, checksum="ab" * 32)
    harness.cloud.calls.reset()
    if fault is None:
        monkeypatch.setattr(settle_module, "OUTPUTS_LISTED_MAX", 0)
    else:
        fault.when = lambda call: call.parameters["Prefix"].startswith("output/")
        harness.cloud.calls.inject(fault)
    [replica] = settled(run).replicas
    assert (replica.checksum, len(_looked_at(harness))) == ("ab" * 32, 5)


def test_the_page_reads_no_record_again_that_the_result_was_made_from(harness: ControlHarness) -> None:
    run = harness.plan()
    complete(harness)
    harness.cloud.calls.reset()
    finish_run(harness.plane, run, budget())
    read = [call["Key"] for call in harness.cloud.calls.of("GetObject")]
    assert read.count(run.documents.layout.record(0)) == 1


def test_a_result_waits_for_the_manifests_of_a_call_that_had_little_time(harness: ControlHarness) -> None:
    run = harness.plan()
    complete(harness, checksum="ab" * 32)
    # The read of the record takes all the time there is.
    record = run.documents.layout.record(0)
    slow = Fault("GetObject", delay_seconds=60, when=lambda call: call.parameters["Key"] == record)
    harness.cloud.calls.inject(slow)
    with pytest.raises(OutOfTimeError):
        settled(run, 30)
    assert (slow.fired, harness.result()) == (1, None)
    assert settled(run, 30).replicas[0].checksum == "ab" * 32


def test_a_manifest_that_is_cut_off_while_it_is_read_is_waited_for(harness: ControlHarness) -> None:
    run = harness.plan()
    complete(harness, checksum="ab" * 32)
    key = f"output/{RUN}/{harness.job()}/manifest.json"
    slow = Fault("GetObject", delay_seconds=60, when=lambda call: call.parameters["Key"] == key)
    harness.cloud.calls.inject(slow)
    with pytest.raises(OutOfTimeError, match="the time limit for finding the manifest was reached"):
        settled(run, 30)
    assert (slow.fired, harness.result()) == (1, None)


@pytest.mark.parametrize(("seconds", "late"), [(250.0, 0), (30.0, 1_801)])
def test_after_enough_time_or_long_after_the_fence_a_manifest_is_given_up(
    harness: ControlHarness, seconds: float, late: float
) -> None:
    run = harness.plan()
    complete(harness, checksum="ab" * 32)
    run.documents.raise_fence(CANCELLED.model_copy(update={"at": clock.now()}))
    harness.cloud.clock.advance(late)
    archive = f"output/{RUN}/{harness.job()}/output/output.tar.gz"
    slow = Fault("GetObject", delay_seconds=300, when=lambda call: call.parameters["Key"] == archive)
    harness.cloud.calls.inject(slow)
    result = settled(run, seconds)
    [replica] = result.replicas
    assert (result.verdict, replica.checksum) == (Verdict.SUCCEEDED, None)
    assert replica.problem is not None
    assert "the time limit for finding the manifest was reached" in replica.problem


def test_attempts_are_counted_and_go_without_their_histories(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.arm()
    harness.cloud.training.fail(harness.job(), "InternalServerError: again")
    harness.deliver()
    harness.arm(attempt=2)
    harness.cloud.training.complete(harness.job(attempt=2))
    harness.deliver()
    result = settled(run)
    [replica] = result.replicas
    assert (result.reruns, [attempt.attempt for attempt in replica.attempts]) == (1, [1, 2])
    assert [attempt.history for attempt in replica.attempts] == [(), ()]
    assert replica.attempts[0].failure_class is FailureClass.INFRASTRUCTURE


def test_a_result_is_written_once_and_never_changed(harness: ControlHarness) -> None:
    run = harness.plan()
    fail(harness)
    first = settled(run)
    harness.cloud.clock.advance(60)
    run.documents.raise_fence(CANCELLED)
    harness.cloud.calls.reset()
    assert settled(run) == first
    # What stands is only read.
    assert harness.cloud.calls.counts() == {"GetObject": 1}


def test_of_two_results_that_are_written_at_once_the_first_stands(harness: ControlHarness) -> None:
    run = harness.plan()
    fail(harness)
    other = Result(run=RUN, verdict=Verdict.STOPPED, reason="first", settled_at="t", replicas=(), reruns=0)
    rival = Fault("PutObject", action=lambda: run.documents.store.create(run.documents.layout.result, other.to_json()))
    harness.cloud.calls.inject(rival)
    assert settled(run) == other
    assert harness.result() == other


def test_a_replica_without_a_record_was_not_launched(harness: ControlHarness) -> None:
    run = harness.plan(replicas=2)
    fail(harness)
    assert outcomes(settled(run)) == ["failed", "not-launched"]


def test_a_damaged_record_keeps_the_others_results(harness: ControlHarness) -> None:
    run = harness.plan(replicas=2, on_replica_failure="continue", min_replicas=1)
    complete(harness)
    run.documents.store.create(run.documents.layout.record(1), b"damaged")
    result = settled(run)
    assert (result.verdict, outcomes(result)) == (Verdict.SUCCEEDED, ["succeeded", "unknown"])
    assert result.replicas[1].problem is not None
    assert "replicas/1.json cannot be read" in result.replicas[1].problem


def test_a_record_of_a_newer_version_is_no_damage_and_no_result_is_written(harness: ControlHarness) -> None:
    """After a rollback. Once the newer version is deployed again, it settles the run."""
    run = harness.plan()
    complete(harness)
    key = run.documents.layout.record(0)
    found = harness.plane.store.get(key)
    assert found is not None
    newer = {**json.loads(found.body), "version": 99, "readable_from": "99.0"}
    harness.plane.store.s3.put_object(Bucket="bucket", Key=key, Body=json.dumps(newer))
    with pytest.raises(NewerDocumentError, match="Use Muster 99"):
        settled(run)
    assert harness.result() is None
    harness.plane.store.s3.put_object(Bucket="bucket", Key=key, Body=found.body)
    assert settled(run).verdict is Verdict.SUCCEEDED


# --- a run that was cut off -----------------------------------------------------------------------


def test_a_job_whose_end_was_not_reported_is_looked_at(harness: ControlHarness) -> None:
    run = harness.plan(replicas=3)
    for rank in range(3):
        harness.arm(rank)
    harness.cloud.training.complete(harness.job(0))
    harness.cloud.training.fail(harness.job(1), BROKEN)
    harness.cloud.training.stop_by_user(harness.job(2))
    harness.cloud.clock.advance(120)
    run.documents.raise_fence(CANCELLED)
    result = settled(run)
    assert outcomes(result) == ["succeeded", "failed", "stopped"]
    classes = [replica.attempts[-1].failure_class for replica in result.replicas]
    assert classes == [None, FailureClass.USER_CODE, FailureClass.STOPPED_BY_MUSTER]
    # Settle writes no record.
    assert harness.record().decision is None


def test_a_replica_without_a_job_was_stopped_with_its_run(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.cloud.calls.inject(throttle("CreateTrainingJob"))
    with pytest.raises(ClientError):
        harness.arm()
    run.documents.raise_fence(CANCELLED)
    assert outcomes(settled(run)) == ["stopped"]


def test_a_foreign_job_says_nothing_of_a_replica(harness: ControlHarness) -> None:
    run = harness.plan(replicas=2)
    harness.arm()
    record = harness.record()
    stranger = record.current.model_copy(update={"job": harness.job(1)})
    run.documents.update_record(1, lambda _: record.model_copy(update={"rank": 1, "attempts": (stranger,)}))
    request = dict(harness.cloud.calls.of("CreateTrainingJob")[0])
    harness.cloud.client("sagemaker").create_training_job(**{**request, "TrainingJobName": harness.job(1), "Tags": []})
    harness.cloud.training.complete(harness.job(1))
    run.documents.raise_fence(CANCELLED)
    assert outcomes(settled(run))[1] == "stopped"


# --- a replica that finished early ----------------------------------------------------------------


def commit_rounds(run: ActiveRun, rounds: int, *finished: Finish, body: bytes | None = None) -> None:
    """The commits of a run's rounds; the last one lists who had finished before."""
    member = Member(rank=0, attempt=1, incarnation=1, epoch=1, weight=1.0, checksum="0" * 8)
    for round_ in range(1, rounds + 1):
        values = {"run": RUN, "round": round_, "committed_at": "t", "count": 1, "epochs": (1,), "members": (member,)}
        commit = Commit(**values, finished=finished if round_ == rounds else ())  # type: ignore[arg-type]
        last = body is not None and round_ == rounds
        run.documents.store.create(run.plan.shared_layout.commit(round_), body if last and body else commit.to_json())


def finish_of(rank: int, run: str = RUN) -> Finish:
    return Finish(rank=rank, run=run, round=7, how="its trainer returned")


def test_the_result_says_who_finished_before_the_last_round_and_compares_the_others(harness: ControlHarness) -> None:
    run = harness.plan(replicas=3)
    commit_rounds(run, 9, finish_of(2))
    for rank, checksum in enumerate(("ab", "ab", "cd")):
        complete(harness, rank, checksum * 32)
    result = settled(run)
    words = "finished in round 7: its trainer returned"
    assert (result.verdict, outcomes(result), result.reruns) == (Verdict.SUCCEEDED, ["succeeded"] * 3, 0)
    assert result.reason == f"3 of 3 replicas succeeded; the last round was 9; replica 2 {words}"
    assert [replica.finished_early for replica in result.replicas] == [None, None, words]
    assert result.parameters_identical is True


def test_the_result_and_its_event_say_how_much_counted_and_how_fast_the_last_rounds_were(
    harness: ControlHarness,
) -> None:
    run = harness.plan()
    commit_rounds(run, 3)
    pace = Pace(rounds=2, round_seconds=10.0, longest_seconds=10.0, samples_per_second=150.0, by_rank=(150.0,))
    member = Member(rank=0, attempt=1, incarnation=1, epoch=1, weight=1500.0, checksum="0" * 8)
    last = Commit(
        run=RUN,
        round=4,
        committed_at="2026-11-21T09:00:00.000Z",  # type: ignore[arg-type]
        count=1,
        members=(member,),
        epochs=(1,),
        unit="tokens",
        samples=6_000.0,
        pace=pace,
    )
    run.documents.store.create(run.plan.shared_layout.commit(4), last.to_json())
    complete(harness)
    result = settled(run)
    assert (result.committed_rounds, result.unit, result.samples, result.samples_per_second) == (
        4,
        "tokens",
        6e3,
        150.0,
    )
    detail = run_ended(result, "s3://bucket/control/run/result.json").detail()
    expected = {"rounds": 4, "unit": "tokens", "samples": 6e3, "samples_per_second": 150.0}
    assert {name: detail[name] for name in expected} == expected


def test_a_reason_names_a_few_of_those_who_finished_early(harness: ControlHarness) -> None:
    run = harness.plan(replicas=5)
    commit_rounds(run, 9, *(finish_of(rank) for rank in range(1, 5)))
    for rank in range(5):
        complete(harness, rank)
    reason = settled(run).reason
    assert reason.count("finished in round 7") == 3
    assert reason.endswith("; and 1 more finished early")


def test_a_replica_that_failed_after_its_trainer_had_returned_did_not_finish_early(harness: ControlHarness) -> None:
    run = harness.plan(replicas=2, on_replica_failure="continue", min_replicas=1)
    commit_rounds(run, 9, finish_of(1))
    complete(harness, 0)
    fail(harness, 1)
    result = settled(run)
    assert (result.reason, result.replicas[1].finished_early) == ("1 of 2 replicas succeeded", None)


@pytest.mark.parametrize("body", [None, b"{", b"x" * 1_000_000])
def test_a_finish_of_an_earlier_run_and_a_commit_that_cannot_be_read_add_nothing(
    harness: ControlHarness, body: bytes | None
) -> None:
    run = harness.plan()
    commit_rounds(run, 3, finish_of(0, "the-run-before"), body=body)
    complete(harness)
    assert settled(run).reason == "1 of 1 replicas succeeded"


# --- findings of the watch ------------------------------------------------------------------------


def put_finding(harness: ControlHarness, name: str, body: bytes) -> None:
    harness.plane.store.create(f"rendezvous/{RUN}/commits/finding-{name}.json", body)


def finding(round_: int, run: str = RUN, rank: int = 0) -> bytes:
    found = Finding(rule=Rule.LOSS, then="report", rank=rank, attempt=1, round=round_, text="its metric loss is nan")
    return FindingDocument(run=run, finding=found).to_json()


def test_the_result_has_the_findings_of_the_run_and_leaves_out_what_is_none(harness: ControlHarness) -> None:
    run = harness.plan(replicas=1)
    complete(harness)
    put_finding(harness, "loss-00000-000001-02", finding(9))
    put_finding(harness, "loss-00000-000001-01", finding(3))
    put_finding(harness, "loss-00000-000001-03", finding(1, run="one-before"))
    put_finding(harness, "loss-00000-000001-04", finding(1, rank=1))
    put_finding(harness, "loss-00000-000001-05", finding(1) + b" " * 5_000)
    put_finding(harness, "loss-00000-000001-06", b"{")
    result = settled(run)
    assert [item.round for item in result.findings] == [3, 9]
    assert result.verdict is Verdict.SUCCEEDED
