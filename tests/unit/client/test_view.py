"""What people read of a run: rows, notes, headlines, log lines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from muster.client.aws.reported import Execution, ExecutionStatus, Job
from muster.client.cli.status_table import HEADINGS, lay_out
from muster.client.runs.progress import advance
from muster.client.runs.run_status import Observation, Progress, RunState, RunStatus, run_status
from muster.client.runs.status_text import Row, changes, elapsed, headline, select
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.layout import RunLayout
from muster.contract.names import JobName
from muster.contract.run.attempt import Attempt
from muster.contract.run.commit import Commit, Member
from muster.contract.run.result import Result, Verdict
from muster.contract.run.waiting import Waiting

START = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
NO_PROGRESS = Progress()


def job(rank: int, attempt: int = 1, status: str = "InProgress", secondary: str = "Training") -> Job:
    name = JobName("muster", "digits", rank, attempt)
    return Job(rank, Attempt(attempt=attempt, job=str(name), status=status, secondary=secondary))


def look(
    *jobs: Job,
    replicas: int = 2,
    execution: str = "RUNNING",
    ended_after: float | None = None,
    now_after: float = 60.0,
    failures: dict[str, FailureClass | None] | None = None,
    progress: Progress = NO_PROGRESS,
    result: Result | None = None,
    cause: str = "",
    waiting: tuple[Waiting, ...] = (),
) -> RunStatus:
    ended_at = None if ended_after is None else START + timedelta(seconds=ended_after)
    return run_status(
        Observation(
            run="digits",
            execution=Execution("digits", ExecutionStatus(execution), START, ended_at, replicas, "", cause),
            jobs=jobs,
            now=START + timedelta(seconds=now_after),
            failures=failures or {},
            progress=progress,
            result=result,
            waiting=waiting,
        )
    )


def settled(verdict: Verdict, reason: str = "") -> Result:
    return Result(
        run="digits", verdict=verdict, reason=reason, settled_at="2026-11-21T09:01:00Z", replicas=(), reruns=0
    )


def rows(status: RunStatus) -> list[Row]:
    return [Row.of(replica, status.state) for replica in status.replicas]


def test_every_rank_has_a_row_before_anything_is_launched() -> None:
    assert [(row.rank, row.attempt, row.status, row.round) for row in rows(look(replicas=2))] == [
        ("0", "–", "not launched", "–"),
        ("1", "–", "not launched", "–"),
    ]


def test_the_latest_attempt_stands_in_the_row_and_the_note_says_why_it_is_a_rerun() -> None:
    first, second = job(1, 1, "Failed", "Failed"), job(1, 2)
    status = look(job(0), second, first, failures={first.name: FailureClass.INFRASTRUCTURE})
    row = rows(status)[1]
    assert (row.attempt, row.status, row.note) == ("2", "Training", "rerun: infrastructure")
    assert status.reruns == 1
    assert "1 rerun" in headline(status)


def test_the_headline_counts_what_was_excluded() -> None:
    assert "excluded" not in headline(look())
    assert "1 contribution excluded" in headline(look().model_copy(update={"excluded": 1}))
    assert "3 contributions excluded" in headline(look().model_copy(update={"excluded": 3}))


def test_a_failed_attempt_whose_replacement_is_not_there_yet_is_being_decided() -> None:
    failed = job(0, 1, "Failed", "Failed")
    row = rows(look(failed, failures={failed.name: FailureClass.CAPACITY}))[0]
    assert (row.status, row.note, row.alert) == ("Failed", "capacity: deciding", True)


def test_a_replica_without_quota_is_shown_as_waiting_for_it_until_it_has_a_job() -> None:
    second, third = Waiting(1, 2, FailureClass.QUOTA), Waiting(1, 3, FailureClass.QUOTA)
    before, waits = look(job(0)), look(job(0), waiting=(third, second))
    row = rows(waits)[1]
    assert (row.status, row.note, row.alert) == ("waiting for quota", "", True)
    assert list(changes(before, waits)) == ["replica 1 waiting for quota"]
    assert list(changes(waits, look(job(0), waiting=(third, second)))) == []
    after = look(job(0), job(1, 3), waiting=(third, second))
    assert rows(after)[1].status == "Training"
    # Another instance was lost, and there is no quota for the next one.
    failed = job(1, 1, "Failed", "Failed")
    assert rows(look(job(0), failed, waiting=(second,)))[1].status == "waiting for quota"


def test_a_run_that_waits_for_its_turn_names_the_runs_ahead() -> None:
    waits = look().model_copy(update={"behind": ("a", "b", "c", "d")})
    assert "queued behind b, c, d and 1 more" in headline(waits)
    assert "run digits queued behind b, c, d and 1 more" in list(changes(look(), waits))
    assert list(changes(waits, look())) == []


def test_a_mark_of_waiting_is_read_from_its_key_alone() -> None:
    mark = Waiting(9_999, 999, FailureClass.QUOTA)
    key = mark.key(RunLayout("run"))
    assert key == "control/run/waiting/9999-999-quota"
    assert Waiting.from_key(key) == mark
    assert [Waiting.from_key(f"control/run/waiting/{name}") for name in ("", "1-2", "1-2-nonsense", "x-1-quota")] == [
        None
    ] * 4


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


def commit(round_: int, losses: dict[int, float]) -> Commit:
    members = tuple(
        Member(rank=rank, attempt=1, incarnation=1, epoch=1, weight=1.0, checksum="0" * 8, metrics={"loss": loss})
        for rank, loss in losses.items()
    )
    return Commit(run="digits", round=round_, committed_at="now", count=1, members=members, epochs=(1, 1))


def test_progress_keeps_the_round_of_a_replica_that_was_left_out() -> None:
    progress = advance(advance(Progress(), commit(3, {0: 1.0, 1: 2.0})), commit(4, {0: 0.5}))
    status = look(job(0), job(1), progress=progress)
    assert [(row.round, row.metrics) for row in rows(status)] == [("4", "loss 0.5"), ("3", "loss 2")]


def test_a_log_gets_a_line_for_each_change_and_none_without_one() -> None:
    before = look(job(0), job(1))
    failed = job(1, 1, "Failed", "Failed")
    progress = Progress(round=5, rounds={0: 5}, metrics={0: {"accuracy": 0.75}})
    after = look(job(0), failed, failures={failed.name: FailureClass.INFRASTRUCTURE}, progress=progress)
    assert list(changes(None, before)) == [
        "replica 0 attempt 1 Training",
        "replica 1 attempt 1 Training",
        "run digits running",
    ]
    assert list(changes(before, before)) == []
    assert list(changes(before, after)) == [
        "replica 1 attempt 1 Failed (infrastructure: deciding)",
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
    failed = job(1, 1, "Failed", "Failed")
    progress = Progress(round=9, rounds={0: 9}, metrics={0: {"accuracy": 0.9482, "loss": 0.1543}})
    status = look(job(0), failed, job(1, 2), failures={failed.name: FailureClass.INFRASTRUCTURE}, progress=progress)
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
