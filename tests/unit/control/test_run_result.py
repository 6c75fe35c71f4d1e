"""Settle: what came of every replica, weighed and written down once."""

import json
from typing import Any

import pytest

from muster.contract.errors import NewerDocumentError
from muster.contract.run.attempt import Attempt
from muster.contract.run.commit import Commit, Finish
from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.finding import FINDINGS_READ_MAX, Finding, FindingDocument, findings_of
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.contract.run.run_document import Manifest
from muster.contract.run.training_pace import Pace
from muster.contract.spec.hook import OWN_LOOP, own_loop_kwargs
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.spec.watch_rules import Rule
from muster.control import run_result
from muster.control.active_run import ActiveRun
from muster.control.aws.aws_errors import UnavailableError
from muster.control.round_notes import with_early_finish_note, with_early_finishes, with_goal_note
from muster.control.run_result import weigh, write_result
from muster.control.runtime import clock
from muster.control.runtime.parallel import OutOfTimeError
from tests.memory import AwsError, Fault
from tests.memory.harness import RUN, SPEC, ControlHarness, budget
from tests.support.control_steps import (
    CANCELLED,
    QUORUM_LOST,
    Row,
    create_job,
    fail,
    found,
    launched,
)
from tests.support.control_steps import complete as complete_job
from tests.support.round_commits import commit_of

MUSTER_FAILED = QUORUM_LOST.model_copy(update={"cause": FenceCause.EXECUTION_FAILED, "reason": "the execution ended"})
CONTINUE = {"on_replica_failure": "continue", "min_replicas": 1}
PROGRAM = {"entrypoint": ["python", "-c", "pass"], "trainer": None}
MANIFEST = f"output/{RUN}/muster-one-r0-a1/manifest.json"


def complete(harness: ControlHarness, rank: int = 0, checksum: str | None = None) -> None:
    """Launch a replica and let it succeed; `checksum`: of the parameters in its manifest, where it leaves one."""
    harness.arm(rank)
    if checksum is not None:
        manifest = Manifest(
            checkpoint_s3_bucket="s3://bucket/final", round=7, checksum=checksum * 32, metrics={"loss": 1.0}
        )
        harness.plane.store.create(f"output/{RUN}/{harness.job(rank)}/manifest.json", manifest.to_json())
    complete_job(harness, rank)


def settled(harness: ControlHarness, seconds: float = 600.0) -> Result:
    return write_result(harness.plane.runs.require(RUN), budget(seconds))


def outcomes(result: Result) -> list[str]:
    return [replica.outcome.value for replica in result.replicas]


# --- the verdict ----------------------------------------------------------------------------------


def test_the_verdict_follows_from_the_outcomes_and_the_fence() -> None:
    spec = parse_spec({**SPEC, "replicas": 3, "min_replicas": 2, "on_replica_failure": "continue"})
    which = {"S": ReplicaOutcome.SUCCEEDED, "F": ReplicaOutcome.FAILED, "X": ReplicaOutcome.STOPPED}
    too_few = "1 of 3 replicas succeeded; 2 were needed"
    rows: list[tuple[str, Fence | None, Verdict, str]] = [
        ("SSS", None, Verdict.SUCCEEDED, "3 of 3 replicas succeeded"),
        ("SSF", None, Verdict.SUCCEEDED, "2 of 3 replicas succeeded"),
        ("FSF", None, Verdict.FAILED, f"{too_few}; replica 0: why"),
        ("XSX", None, Verdict.FAILED, too_few),
        ("SSS", CANCELLED, Verdict.SUCCEEDED, "3 of 3 replicas succeeded"),
        ("SSX", CANCELLED, Verdict.STOPPED, "cancelled"),
        ("SSF", QUORUM_LOST, Verdict.FAILED, "replica 0 was lost"),
        # Muster itself has failed: after all replicas had ended, and while one was still at work.
        ("SSF", MUSTER_FAILED, Verdict.SUCCEEDED, "2 of 3 replicas succeeded"),
        ("FSF", MUSTER_FAILED, Verdict.FAILED, f"{too_few}; replica 0: why"),
        ("SSX", MUSTER_FAILED, Verdict.FAILED, "the execution ended"),
    ]
    attempts = (Attempt(attempt=1, job="job", reason="why"),)
    for ends, fence, verdict, reason in rows:
        replicas = [ReplicaResult(rank=rank, outcome=which[end], attempts=attempts) for rank, end in enumerate(ends)]
        assert weigh(spec, replicas, fence) == (verdict, reason), (ends, fence)


# --- a run that came to its end -------------------------------------------------------------------


def test_whether_the_replicas_hold_the_same_parameters(row: Row) -> None:
    for checksums, identical in ((("ab", "ab"), True), (("ab", "cd"), False), (("ab", None), None)):
        with row(checksums) as harness:
            harness.plan(replicas=2)
            for rank, checksum in enumerate(checksums):
                complete(harness, rank, checksum)
            assert settled(harness).parameters_identical is identical


def test_a_missing_manifest_is_a_problem_and_no_failure_except_of_a_trainer_with_its_own_loop(row: Row) -> None:
    own_loop: dict[str, Any] = {"trainer": OWN_LOOP, "kwargs": own_loop_kwargs("m:train", {})}
    for name, fields, words in (("a problem", {}, "no manifest"), ("no problem", own_loop, "None")):
        with row(name) as harness:
            harness.plan(**fields)
            complete(harness)
            result = settled(harness)
            [replica] = result.replicas
            assert (result.verdict, replica.checkpoint_uri, replica.round) == (Verdict.SUCCEEDED, None, None)
            assert str(replica.artifacts).endswith(f"{harness.job()}/output/model.tar.gz")
            assert words in str(replica.problem)


def test_the_outputs_of_programs_are_listed_once_and_looked_for_where_they_cannot_be(
    row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = Fault("ListObjectsV2", AwsError("AccessDenied", status=403))
    for name, fault, listed_max, looks in (("few", None, 9, 1), ("denied", denied, 9, 5), ("many", None, 0, 5)):
        with row(name) as harness:
            harness.plan(**PROGRAM)
            complete(harness, 0, "ab")
            monkeypatch.setattr(run_result, "OUTPUTS_LISTED_MAX", listed_max)
            harness.cloud.calls.reset()
            if fault is not None:
                fault.when = lambda call: call.parameters["Prefix"] == "output/one/"
                harness.cloud.calls.inject(fault)
            [replica] = settled(harness).replicas
            looked_at = [call for call in harness.cloud.calls.of("GetObject") if call["Key"].startswith("output/")]
            assert (replica.checksum, len(looked_at)) == ("ab" * 32, looks)


def test_a_result_waits_for_the_manifests_of_a_call_that_had_little_time(row: Row) -> None:
    """A read takes all the time there is: that of the record, or that of the manifest itself."""
    for key in (f"control/{RUN}/replicas/0.json", MANIFEST):
        with row(key) as harness:
            harness.plan()
            complete(harness, 0, "ab")
            slow = Fault("GetObject", delay_seconds=60, when=lambda call, key=key: call.parameters["Key"] == key)
            harness.cloud.calls.inject(slow)
            with pytest.raises(OutOfTimeError):
                settled(harness, 30)
            assert (slow.fired, harness.result()) == (1, None)
            assert settled(harness, 30).replicas[0].checksum == "ab" * 32


def test_after_enough_time_or_long_after_the_fence_a_manifest_is_given_up(row: Row) -> None:
    archive = f"output/{RUN}/muster-one-r0-a1/output/output.tar.gz"
    for seconds, late in ((250.0, 0), (30.0, 1_801)):
        with row(f"{seconds:.0f} s, {late} s after the fence") as harness:
            run = harness.plan()
            complete(harness, 0, "ab")
            run.documents.raise_fence(CANCELLED.model_copy(update={"at": clock.now()}))
            harness.cloud.clock.advance(late)
            slow = Fault("GetObject", delay_seconds=300, when=lambda call: call.parameters["Key"] == archive)
            harness.cloud.calls.inject(slow)
            result = settled(harness, seconds)
            [replica] = result.replicas
            assert (result.verdict, replica.checksum) == (Verdict.SUCCEEDED, None)
            assert "time limit" in found(replica.problem)


def test_a_result_waits_for_a_manifest_that_s3_does_not_give_in_passing_but_not_for_ever(row: Row) -> None:
    """The workflow tries the task again. A refusal that stays delays nothing."""
    rows: tuple[tuple[str, AwsError, bool, float], ...] = (
        ("S3 fails at the end", AwsError("InternalError", "We encountered an error.", 500), False, 0),
        ("S3 is slow at the end", AwsError("SlowDown", "Reduce your request rate.", 503), False, 1_700),
        ("half an hour after the end", AwsError("InternalError", "We encountered an error.", 500), True, 1_801),
        ("its key is disabled", AwsError("KMS.DisabledException", "The key is disabled.", 400), True, 0),
    )
    for name, error, is_written, late in rows:
        with row(name) as harness:
            harness.plan()
            complete(harness, 0, "ab")
            harness.cloud.clock.advance(late)
            harness.cloud.calls.inject(Fault("GetObject", error, when=lambda call: call.parameters["Key"] == MANIFEST))
            if is_written:
                assert "S3 answered" in found(settled(harness).replicas[0].problem)
                continue
            with pytest.raises(UnavailableError, match=error.code):
                settled(harness)
            assert harness.result() is None
            assert settled(harness).replicas[0].checkpoint_uri == "s3://bucket/final"


def test_of_two_results_that_are_written_at_once_the_first_stands(harness: ControlHarness) -> None:
    run = launched(harness)
    fail(harness)
    other = Result(run=RUN, verdict=Verdict.STOPPED, reason="first", settled_at="t", replicas=(), reruns=0)
    rival = Fault("PutObject", action=lambda: run.documents.store.create(run.documents.layout.result, other.to_json()))
    harness.cloud.calls.inject(rival)
    assert settled(harness) == harness.result() == other


def test_a_record_of_a_newer_version_is_no_damage_and_no_result_is_written(harness: ControlHarness) -> None:
    """After a rollback. Once the newer version is deployed again, it settles the run."""
    key = harness.plan().documents.layout.record(0)
    complete(harness)
    record = found(harness.plane.store.get(key)).body
    newer = {**json.loads(record), "version": 99, "readable_from": "99.0"}
    harness.plane.store.s3.put_object(Bucket="bucket", Key=key, Body=json.dumps(newer))
    with pytest.raises(NewerDocumentError, match="Use Muster 99"):
        settled(harness)
    assert harness.result() is None
    harness.plane.store.s3.put_object(Bucket="bucket", Key=key, Body=record)
    assert settled(harness).verdict is Verdict.SUCCEEDED


def test_a_foreign_job_is_not_taken_for_that_of_a_replica(harness: ControlHarness) -> None:
    run = launched(harness)
    stranger = harness.record().current.model_copy(update={"job": harness.job(1)})
    run.documents.update_record(0, lambda record: record and record.model_copy(update={"attempts": (stranger,)}))
    harness.cloud.training.complete(create_job(harness, harness.job(1), Tags=[]))
    run.documents.raise_fence(CANCELLED)
    assert outcomes(settled(harness)) == ["stopped"]


# --- a replica that finished early ----------------------------------------------------------------


def last_commit(**fields: Any) -> Commit:
    return commit_of([0], **{"run": RUN, "round": 3, "committed_at": "t", "epochs": (1,), **fields})


def commit_rounds(run: ActiveRun, last: Commit, body: bytes | None = None) -> None:
    """The commits of a run's rounds; `body` is what lies where the last one should."""
    for round_ in range(1, last.round + 1):
        written = last.model_copy(update={"round": round_, "finished": last.finished if round_ == last.round else ()})
        content = body if body is not None and round_ == last.round else written.to_json()
        run.documents.store.create(run.plan.shared_layout.commit(round_), content)


def finish_of(rank: int, run: str = RUN) -> Finish:
    return Finish(rank=rank, run=run, round=7, how="its trainer returned")


def test_the_result_says_who_finished_before_the_last_round_and_compares_the_others(harness: ControlHarness) -> None:
    commit_rounds(harness.plan(replicas=3), last_commit(round=9, finished=(finish_of(2),)))
    for rank, checksum in enumerate(("ab", "ab", "cd")):
        complete(harness, rank, checksum)
    result = settled(harness)
    words = "finished in round 7: its trainer returned"
    assert (result.verdict, outcomes(result), result.reruns) == (Verdict.SUCCEEDED, ["succeeded"] * 3, 0)
    assert result.reason == f"3 of 3 replicas succeeded; the last round was 9; replica 2 {words}"
    assert [replica.finished_early for replica in result.replicas] == [None, None, words]
    assert result.parameters_identical is True


def test_the_result_says_how_much_counted_and_how_fast_the_last_rounds_were(harness: ControlHarness) -> None:
    pace = Pace(rounds=2, round_seconds=10.0, longest_seconds=10.0, samples_per_second=150.0, by_rank=(150.0,))
    commit_rounds(harness.plan(), last_commit(round=4, unit="tokens", samples=6_000.0, pace=pace))
    complete(harness)
    result = settled(harness)
    assert (result.committed_rounds, result.unit) == (4, "tokens")
    assert (result.samples, result.samples_per_second) == (6e3, 150.0)


def test_a_finish_of_an_earlier_run_and_a_commit_that_cannot_be_read_add_nothing(row: Row) -> None:
    for name, body in (("an earlier run", None), ("damaged", b"{"), ("too large", b"x" * 1_000_000)):
        with row(name) as harness:
            commit_rounds(harness.plan(), last_commit(finished=(finish_of(0, "the-run-before"),)), body)
            complete(harness)
            assert settled(harness).reason == "1 of 1 replicas succeeded"


EXITED = "its trainer called sys.exit(0)"


def replica_of(rank: int, outcome: ReplicaOutcome = ReplicaOutcome.SUCCEEDED, **fields: Any) -> ReplicaResult:
    return ReplicaResult(rank=rank, outcome=outcome, **fields)


def test_a_replica_that_failed_after_its_trainer_had_returned_did_not_finish_early() -> None:
    replicas = [replica_of(0), replica_of(1, ReplicaOutcome.FAILED)]
    early = with_early_finishes(replicas, [finish_of(rank) for rank in range(2)])
    assert [one.finished_early is not None for one in early] == [True, False]


def test_a_trainer_that_called_sys_exit_is_named() -> None:
    assert with_early_finish_note("all", [replica_of(0), replica_of(1)], 3) == "all"
    early = f"finished in round 2: {EXITED}"
    both = [replica_of(0, finished_early=early), *(replica_of(rank, ended=EXITED) for rank in range(1, 6))]
    assert with_early_finish_note("all", both, 3).split("; ") == [
        "all",
        "the last round was 3",
        f"replica 0 {early}",
        *(f"replica {rank} ended: {EXITED}" for rank in (1, 2, 3)),
        "and 2 more ended so",
    ]
    many = [replica_of(rank, finished_early=early) for rank in range(4)]
    assert with_early_finish_note("all", many, 3).endswith("; and 1 more finished early")


def test_a_success_with_fewer_rounds_than_expected_says_so() -> None:
    fewer = "; the training ended with round 3 of the 6 that its trainers expect"
    for round_, expected, note in ((3, 6, fewer), (6, 6, ""), (7, 6, ""), (3, None, "")):
        last = last_commit(round=round_, expected_rounds=expected)
        assert with_goal_note("all", Verdict.SUCCEEDED, last) == f"all{note}", (round_, expected)
        assert with_goal_note("cancelled", Verdict.STOPPED, last) == "cancelled", (round_, expected)
    assert with_goal_note("all", Verdict.SUCCEEDED, None) == "all"


# --- findings of the watch ------------------------------------------------------------------------


COMMITS = f"rendezvous/{RUN}/commits/"


def finding(round_: int, run: str = RUN, rank: int = 0) -> bytes:
    of_rule = Finding(rule=Rule.LOSS, then="report", rank=rank, attempt=1, round=round_, text="its metric loss is nan")
    return FindingDocument(run=run, finding=of_rule).to_json()


def test_the_result_has_the_findings_of_the_run_and_leaves_out_what_is_none(harness: ControlHarness) -> None:
    harness.plan()
    complete(harness)
    others = [finding(1, run="one-before"), finding(1, rank=1), finding(1) + b" " * 5_000, b"{"]
    for number, body in enumerate((finding(3), finding(9), *others)):
        harness.plane.store.create(f"{COMMITS}{findings_of(RUN)}loss-00000-000001-{number:02}.json", body)
    result = settled(harness)
    assert [item.round for item in result.findings] == [3, 9]
    assert result.verdict is Verdict.SUCCEEDED


def test_many_findings_of_runs_before_hide_none_of_a_continuation(harness: ControlHarness) -> None:
    harness.plan()
    complete(harness)
    runs = [(Rule.HANG, "one-before", number) for number in range(FINDINGS_READ_MAX)]
    for rule, run, number in (*runs, (Rule.LOSS, RUN, 9)):
        key = f"{COMMITS}{findings_of(run)}{rule}-{number:05}-000001-0000-01.json"
        harness.plane.store.create(key, finding(number, run))
    assert [item.round for item in settled(harness).findings] == [9]
