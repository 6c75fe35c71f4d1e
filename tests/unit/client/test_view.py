"""What people read of a run: rows, notes, headlines, log lines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from muster.client.aws.reported import Execution, ExecutionStatus
from muster.client.cli.status_table import HEADINGS, lay_out, status_lines
from muster.client.runs.progress import advance
from muster.client.runs.run_state import RunState, elapsed
from muster.client.runs.run_status import Observation, Progress, ReplicaState, RunStatus, run_status
from muster.client.runs.status_text import Row, changes, headline, select
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.hyperpod.cluster_job import ClusterJob
from muster.contract.names import JobName
from muster.contract.recipe.recipe_reference import RunRecipe
from muster.contract.run.attempt import NOT_CREATED, Attempt, Transition
from muster.contract.run.commit import Commit, Finish, Member
from muster.contract.run.record import Decision, Next
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.contract.run.roll_up import ReplicaEntry

START = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
NO_PROGRESS = Progress()


class Job(NamedTuple):
    """An attempt of a replica in the roll-up."""

    rank: int
    attempt: Attempt


def job(
    rank: int,
    attempt: int = 1,
    status: str = "InProgress",
    secondary: str = "Training",
    failure: FailureClass | None = None,
) -> Job:
    name = str(JobName("muster", "digits", rank, attempt))
    return Job(rank, Attempt(attempt=attempt, job=name, status=status, secondary=secondary, failure_class=failure))


def refused(rank: int, attempt: int = 1, failure: FailureClass = FailureClass.QUOTA) -> Job:
    return job(rank, attempt, "Failed", NOT_CREATED, failure)


def rerun(attempt: int) -> Decision:
    return Decision(next=Next.RERUN, attempt=attempt)


def look(
    *jobs: Job,
    replicas: int = 2,
    execution: str = "RUNNING",
    ended_after: float | None = None,
    now_after: float = 60.0,
    decisions: dict[int, Decision] | None = None,
    progress: Progress = NO_PROGRESS,
    result: Result | None = None,
    cause: str = "",
) -> RunStatus:
    ended_at = None if ended_after is None else START + timedelta(seconds=ended_after)
    attempts: dict[int, list[Attempt]] = {}
    for rank, attempt in sorted(jobs, key=lambda one: one.attempt.attempt):
        attempts.setdefault(rank, []).append(attempt)
    entries = {
        rank: ReplicaEntry(rank=rank, revision=1, attempts=tuple(found), decision=(decisions or {}).get(rank))
        for rank, found in attempts.items()
    }
    return run_status(
        Observation(
            run="digits",
            execution=Execution("digits", ExecutionStatus(execution), START, ended_at, replicas, "", cause),
            entries=entries,
            now=START + timedelta(seconds=now_after),
            progress=progress,
            result=result,
        )
    )


def settled(verdict: Verdict, *replicas: ReplicaResult, reason: str = "") -> Result:
    return Result(
        run="digits", verdict=verdict, reason=reason, settled_at="2026-11-21T09:01:00Z", replicas=replicas, reruns=0
    )


def rows(status: RunStatus) -> list[Row]:
    return [Row.of(replica, status.state) for replica in status.replicas]


def test_every_rank_has_a_row_before_anything_is_launched() -> None:
    assert [(row.rank, row.attempt, row.status, row.round) for row in rows(look(replicas=2))] == [
        ("0", "–", "not launched", "–"),
        ("1", "–", "not launched", "–"),
    ]


def test_the_latest_attempt_stands_in_the_row_and_the_note_says_why_it_is_a_rerun() -> None:
    first, second = job(1, 1, "Failed", "Failed", FailureClass.INFRASTRUCTURE), job(1, 2)
    status = look(job(0), second, first)
    row = rows(status)[1]
    assert (row.attempt, row.status, row.note) == ("2", "Training", "rerun: infrastructure")
    assert status.reruns == 1
    assert "1 rerun" in headline(status)


def test_the_headline_counts_what_was_excluded() -> None:
    assert "excluded" not in headline(look())
    assert "1 contribution excluded" in headline(look().model_copy(update={"excluded": 1}))
    assert "3 contributions excluded" in headline(look().model_copy(update={"excluded": 3}))


@pytest.mark.parametrize(
    ("follows", "note"), [(Next.RERUN, "capacity: to be rerun"), (Next.FAIL, "capacity: no rerun"), (None, "capacity")]
)
def test_a_failed_attempt_says_what_follows(follows: Next | None, note: str) -> None:
    decisions = {0: Decision(next=follows, attempt=2)} if follows else {}
    row = rows(look(job(0, 1, "Failed", "Failed", FailureClass.CAPACITY), decisions=decisions))[0]
    assert (row.status, row.note, row.alert) == ("Failed", note, True)


def test_a_replica_without_quota_is_shown_as_waiting_for_it_until_it_is_launched() -> None:
    before, waits = look(job(0)), look(job(0), refused(1), decisions={1: rerun(2)})
    row = rows(waits)[1]
    assert (row.attempt, row.status, row.note, row.alert) == ("1", "waiting for quota", "", True)
    assert waits.replicas[1].job is None
    assert list(changes(before, waits)) == ["replica 1 waiting for quota"]
    assert list(changes(waits, look(job(0), refused(1), refused(1, 2), decisions={1: rerun(3)}))) == []
    after = look(job(0), refused(1), refused(1, 2), job(1, 3))
    assert (rows(after)[1].status, rows(after)[1].note) == ("Training", "rerun: quota ×2")
    # Another instance was lost, and there is no quota for the next one.
    failed = job(1, 1, "Failed", "Failed", FailureClass.INFRASTRUCTURE)
    assert rows(look(job(0), failed, refused(1, 2), decisions={1: rerun(3)}))[1].status == "waiting for quota"


def test_a_replica_that_got_no_quota_until_the_end_has_failed() -> None:
    lost = Decision(next=Next.FAIL, attempt=1, lost=True)
    status = look(job(0, status="Completed"), refused(1), decisions={1: lost}, execution="FAILED", ended_after=50)
    assert rows(status)[1].status == "Failed"
    assert status.replicas[1].state_in(RunState.FAILED) is ReplicaState.FAILED


def test_a_run_that_ended_waits_for_nothing() -> None:
    status = look(refused(0), decisions={0: rerun(2)}, execution="ABORTED", ended_after=50)
    assert rows(status)[0].status == "Failed"


def test_an_attempt_is_launching_until_sagemaker_reports_its_job() -> None:
    status = look(job(0, status="", secondary=""))
    assert (rows(status)[0].attempt, rows(status)[0].status) == ("1", "launching")
    assert status.replicas[0].state_in(RunState.RUNNING) is ReplicaState.PENDING
    # Stop may still find a job of it, which the settlement reports.
    ended = look(job(0, status="", secondary=""), execution="ABORTED", ended_after=50)
    assert (ended.state, rows(ended)[0].status) == (RunState.STOPPING, "launching")
    after = look(job(0, status="", secondary=""), execution="ABORTED", ended_after=50, result=settled(Verdict.STOPPED))
    assert (after.state, rows(after)[0].status) == (RunState.STOPPED, "not launched")


def test_a_status_says_since_when() -> None:
    begun = [Transition(at=f"2026-11-21T09:00:0{second}Z", secondary="Training") for second in (1, 2)]
    one = job(0)
    running = Job(0, one.attempt.model_copy(update={"history": tuple(begun), "launched_at": "2026-11-21T09:00:00Z"}))
    assert look(running).replicas[0].since == "2026-11-21T09:00:02Z"
    ended = Job(0, running.attempt.model_copy(update={"ended_at": "2026-11-21T09:00:03Z", "status": "Completed"}))
    assert look(ended).replicas[0].since == "2026-11-21T09:00:03Z"


def test_a_run_that_waits_for_its_turn_names_the_runs_ahead() -> None:
    waits = look().model_copy(update={"behind": ("a", "b", "c", "d")})
    assert "queued behind b, c, d and 1 more" in headline(waits)
    assert "run digits queued behind b, c, d and 1 more" in list(changes(look(), waits))
    assert list(changes(waits, look())) == []


def test_a_spot_interruption_is_shown_as_the_same_job() -> None:
    row = rows(look(job(0, secondary="Interrupted")))[0]
    assert (row.attempt, row.note) == ("1", "spot: restarting")


def test_statuses_that_are_not_known_are_shown_as_they_are_and_are_no_end() -> None:
    assert rows(look(job(0, secondary="Hibernating")))[0].status == "Hibernating"
    status = look(job(0, status="Deleting", secondary=""), execution="ABORTED", ended_after=5)
    assert (rows(status)[0].status, status.state) == ("Deleting", RunState.STOPPING)


@pytest.mark.parametrize(
    ("execution", "jobs", "result", "state"),
    [
        ("SUCCEEDED", [job(0, status="Completed")], settled(Verdict.SUCCEEDED), RunState.SUCCEEDED),
        ("FAILED", [job(0, status="Failed")], settled(Verdict.FAILED), RunState.FAILED),
        ("ABORTED", [job(0, status="Stopping")], None, RunState.STOPPING),
        ("ABORTED", [job(0, status="Stopped")], None, RunState.STOPPING),
        ("ABORTED", [job(0, status="Stopped")], settled(Verdict.STOPPED), RunState.STOPPED),
        ("ABORTED", [], None, RunState.STOPPED),
        ("FAILED", [], None, RunState.FAILED),
        ("TIMED_OUT", [], None, RunState.FAILED),
    ],
)
def test_a_run_has_ended_when_its_jobs_have_and_it_is_settled(
    execution: str, jobs: list[Job], result: Result | None, state: RunState
) -> None:
    assert look(*jobs, execution=execution, ended_after=50, result=result).state is state


def test_a_settlement_that_never_comes_does_not_keep_a_watch_for_ever() -> None:
    status = look(job(0, status="Stopped"), execution="ABORTED", ended_after=0, now_after=3_600)
    assert status.state is RunState.STOPPED


def test_an_end_whose_event_was_lost_does_not_keep_a_watch_for_ever() -> None:
    """The settlement looked at the job; without one, nothing watches it after an hour."""
    stopped = job(0, status="Stopped", secondary="Stopped").attempt
    seen = ReplicaResult(rank=0, outcome=ReplicaOutcome.STOPPED, attempts=(stopped,))
    status = look(job(0), execution="ABORTED", ended_after=50, result=settled(Verdict.STOPPED, seen))
    assert (status.state, rows(status)[0].status) == (RunState.STOPPED, "Stopped")
    later = look(job(0), execution="ABORTED", ended_after=0, now_after=3_600, result=settled(Verdict.STOPPED))
    assert later.state is RunState.STOPPED


def test_an_end_that_came_after_the_settlement_is_shown() -> None:
    stopping = job(0, status="Stopping", secondary="Stopping").attempt
    seen = ReplicaResult(rank=0, outcome=ReplicaOutcome.STOPPED, attempts=(stopping,))
    result = settled(Verdict.STOPPED, seen)
    before = look(job(0), execution="ABORTED", ended_after=50, result=result)
    after = look(job(0, status="Stopped"), execution="ABORTED", ended_after=50, result=result)
    assert (before.state, after.state) == (RunState.STOPPING, RunState.STOPPED)


def test_a_settled_run_of_an_older_version_has_its_attempts_from_the_result() -> None:
    attempts = (job(0, 1, "Failed", "Failed", FailureClass.CAPACITY).attempt, job(0, 2, "Completed").attempt)
    result = settled(Verdict.SUCCEEDED, ReplicaResult(rank=0, outcome=ReplicaOutcome.SUCCEEDED, attempts=attempts))
    status = look(execution="SUCCEEDED", ended_after=50, result=result, replicas=1)
    assert (status.state, rows(status)[0].attempt, rows(status)[0].status) == (RunState.SUCCEEDED, "2", "Completed")


def commit(round_: int, losses: dict[int, float]) -> Commit:
    members = tuple(
        Member(rank=rank, attempt=1, incarnation=1, epoch=1, weight=1.0, checksum="0" * 8, metrics={"loss": loss})
        for rank, loss in losses.items()
    )
    return Commit(run="digits", round=round_, committed_at="now", count=1, members=members, epochs=(1, 1))


def test_progress_keeps_the_round_of_a_replica_that_was_left_out() -> None:
    progress = advance(advance(Progress(), commit(3, {0: 1.0, 1: 2.0}), 2), commit(4, {0: 0.5}), 2)
    status = look(job(0), job(1), progress=progress)
    assert [(row.round, row.metrics) for row in rows(status)] == [("4", "loss 0.5"), ("3", "loss 2")]


def test_a_replica_that_finished_early_says_so_while_the_others_train_on() -> None:
    early = Finish(rank=1, run="digits", round=3, how="its trainer called sys.exit(0)")
    before = Finish(rank=0, run="the-run-before", round=2, how="its trainer returned")
    last = commit(4, {0: 0.5}).model_copy(update={"finished": (before, early)})
    status = look(
        job(0), job(1, status="Completed"), progress=advance(advance(Progress(), commit(3, {1: 1.0}), 2), last, 2)
    )
    words = "finished in round 3: its trainer called sys.exit(0)"
    assert [replica.finished_early for replica in status.replicas] == [None, words]
    assert [row.note for row in rows(status)] == ["", words]
    assert f"replica 1 attempt 1 Completed ({words})" in list(changes(None, status))


def test_a_log_gets_a_line_for_each_change_and_none_without_one() -> None:
    before = look(job(0), job(1))
    failed = job(1, 1, "Failed", "Failed", FailureClass.INFRASTRUCTURE)
    progress = Progress(round=5, rounds={0: 5}, metrics={0: {"accuracy": 0.75}})
    after = look(job(0), failed, decisions={1: rerun(2)}, progress=progress)
    assert list(changes(None, before)) == [
        "replica 0 attempt 1 Training",
        "replica 1 attempt 1 Training",
        "run digits running",
    ]
    assert list(changes(before, before)) == []
    assert list(changes(before, after)) == [
        "replica 1 attempt 1 Failed (infrastructure: to be rerun)",
        "round 5: 1 of 2 replicas, mean accuracy 0.75",
    ]


def test_the_reason_of_a_failed_run_is_shown() -> None:
    status = look(execution="FAILED", ended_after=1, cause="The spec has 1 problem")
    assert list(changes(look(), status)) == ["run digits failed: The spec has 1 problem"]


def test_of_many_replicas_those_with_something_to_say_are_shown() -> None:
    status = look(
        *(job(rank, secondary="Interrupted" if rank == 70 else "Training") for rank in range(100)), replicas=100
    )
    shown, others = select(rows(status), 10)
    assert [row.rank for row in shown] == [*map(str, range(9)), "70"]
    assert others == "and 90 more: 90 Training"


def test_elapsed_time_stops_with_the_run() -> None:
    status = look(execution="FAILED", ended_after=3_725)
    assert elapsed(status.started_at, status.ended_at) == "1:02:05"


def test_a_run_that_goes_on_says_where_and_from_what() -> None:
    ended = look(execution="FAILED", ended_after=10).model_copy(update={"continued_by": "digits-x2"})
    assert headline(ended).endswith("continued by digits-x2")
    assert list(changes(ended.model_copy(update={"continued_by": None}), ended)) == [
        "run digits is continued by digits-x2"
    ]
    assert headline(look().model_copy(update={"parent": "digits"})).endswith("continues digits")


def test_a_table_fits_into_its_width_and_only_metrics_give_way() -> None:
    failed = job(1, 1, "Failed", "Failed", FailureClass.INFRASTRUCTURE)
    progress = Progress(round=9, rounds={0: 9}, metrics={0: {"accuracy": 0.9482, "loss": 0.1543}})
    status = look(job(0), failed, job(1, 2), progress=progress)
    assert lay_out([HEADINGS, *rows(status)], 81) == [
        "rank  attempt  status        round  metrics                 note",
        "   0        1  Training          9  accuracy 0.9482, loss…",
        "   1        2  Training          –  –                       rerun: infrastructure",
    ]
    # Where not even the beginning of a metric has room, the notes have all of it.
    assert lay_out([HEADINGS, *rows(status)], 60)[1:] == [
        "   0        1  Training          9",
        "   1        2  Training          –  rerun: infrastructure",
    ]


def test_the_recipe_of_a_run_is_a_line_below_its_replicas() -> None:
    recipe = RunRecipe(name="verl", family="llmft", digest="0" * 64)
    lines = [line.text for line in status_lines(look().model_copy(update={"recipe": recipe}), 120, None)]
    assert f"Recipe: verl (family llmft), digest {'0' * 64}." in lines
    assert not [line.text for line in status_lines(look(), 120, None) if line.text.startswith("Recipe")]


def test_the_table_names_clusters_only_where_a_run_uses_them() -> None:
    on_cluster = job(1, secondary="WaitingForQuota")
    cluster = ClusterJob(cluster="ml-cluster", namespace="team-a", queue="team-a-queue")
    waiting = on_cluster.attempt.model_copy(update={"cluster": cluster})
    status = look(job(0), Job(1, waiting))
    heading, *lines = [line.text for line in status_lines(status, 120, None)[1:4]]
    assert heading.split()[:4] == ["rank", "cluster", "attempt", "status"]
    assert lines[0].split()[:3] == ["0", "–", "1"]
    assert lines[1].split()[:2] == ["1", "ml-cluster"]
    assert "waiting for quota" in lines[1]
    assert lines[1].endswith("in queue team-a-queue")
    assert status.replicas[1].state_in(RunState.RUNNING) is ReplicaState.PENDING
    assert "cluster" not in "".join(line.text for line in status_lines(look(job(0), job(1)), 120, None))


def test_a_job_on_a_cluster_notes_its_instances_and_restarts() -> None:
    cluster = ClusterJob(cluster="c", namespace="n", instances=2, least=1, most=4, restarts=2)
    attempt = job(0).attempt.model_copy(update={"cluster": cluster})
    assert rows(look(Job(0, attempt)))[0].note == "2 instances of 1 to 4; restarted 2 times by the operator"
    restarting = attempt.model_copy(update={"secondary": "Restarting", "cluster": ClusterJob(cluster="c")})
    (row, _) = rows(look(Job(0, restarting)))
    assert (row.status, row.note, row.alert) == ("Restarting", "the operator restarts it", True)
