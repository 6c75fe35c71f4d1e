"""What people read of a run: rows, notes, headlines, log lines."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from muster.client.aws.reported import Execution, ExecutionStatus
from muster.client.cli.status_table import HEADINGS, lay_out, status_lines
from muster.client.runs import run_state, status_text
from muster.client.runs.run_progress import advance
from muster.client.runs.run_state import RunState
from muster.client.runs.run_status import Observation, Progress, ReplicaState, RunStatus, run_status
from muster.client.runs.status_text import ReplicaLine, changes, headline, select
from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.names import JobName
from muster.contract.run.attempt import NOT_CREATED, Attempt, Transition
from muster.contract.run.cluster_job import ClusterJob
from muster.contract.run.commit import Commit, Finish
from muster.contract.run.record import Decision, Next
from muster.contract.run.result import ReplicaResult, Result, Verdict
from muster.contract.run.roll_up import ReplicaEntry
from muster.contract.run.trained_data import DataProgress
from muster.contract.run.training_pace import Pace
from tests.support.round_commits import commit_of, member

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
    started_after: float = 0.0,
    decisions: dict[int, Decision] | None = None,
    progress: Progress = NO_PROGRESS,
    result: Result | None = None,
    cause: str = "",
) -> RunStatus:
    ended_at = None if ended_after is None else START + timedelta(seconds=ended_after)
    began = START + timedelta(seconds=started_after)
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
            execution=Execution("digits", ExecutionStatus(execution), began, ended_at, replicas, "", cause),
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


def rows(status: RunStatus) -> list[ReplicaLine]:
    return [ReplicaLine.of(replica, status.state) for replica in status.replicas]


def test_the_latest_attempt_stands_in_the_row_and_the_note_says_why_it_is_a_rerun() -> None:
    first, second = job(1, 1, "Failed", "Failed", FailureClass.INFRASTRUCTURE), job(1, 2)
    status = look(job(0), second, first)
    row = rows(status)[1]
    assert (row.attempt, row.status, row.note) == ("2", "Training", "rerun: infrastructure")
    assert status.reruns == 1
    assert "1 rerun" in headline(status)


def test_the_headline_counts_what_was_excluded_and_names_the_runs_around() -> None:
    assert "excluded" not in headline(look())
    for count, words in ((1, "1 contribution excluded"), (3, "3 contributions excluded")):
        assert words in headline(look().model_copy(update={"excluded": count}))
    waits = look().model_copy(update={"behind": ("a", "b", "c", "d")})
    assert "queued behind b, c, d and 1 more" in headline(waits)
    assert "run digits queued behind b, c, d and 1 more" in list(changes(look(), waits))
    assert list(changes(waits, look())) == []
    ended = look(execution="FAILED", ended_after=10).model_copy(update={"continued_by": "digits-x2"})
    assert headline(ended).endswith("continued by digits-x2")
    before = ended.model_copy(update={"continued_by": None})
    assert list(changes(before, ended)) == ["run digits is continued by digits-x2"]
    assert headline(look().model_copy(update={"parent": "digits"})).endswith("continues digits")


def test_a_failed_attempt_says_what_follows() -> None:
    for follows, note in ((Next.RERUN, "capacity: to be rerun"), (Next.FAIL, "capacity: no rerun"), (None, "capacity")):
        decisions = {0: Decision(next=follows, attempt=2)} if follows else {}
        row = rows(look(job(0, 1, "Failed", "Failed", FailureClass.CAPACITY), decisions=decisions))[0]
        assert (row.status, row.note, row.alert) == ("Failed", note, True)


def test_a_replica_without_quota_is_shown_as_waiting_for_it_until_it_is_launched() -> None:
    before, waits = look(job(0)), look(job(0), refused(1), decisions={1: rerun(2)})
    row = rows(waits)[1]
    assert (row.attempt, row.status, row.note, row.alert) == ("1", "waiting for quota", "", True)
    assert list(changes(before, waits)) == ["replica 1 waiting for quota"]
    assert list(changes(waits, look(job(0), refused(1), refused(1, 2), decisions={1: rerun(3)}))) == []
    after = look(job(0), refused(1), refused(1, 2), job(1, 3))
    assert (rows(after)[1].status, rows(after)[1].note) == ("Training", "rerun: quota ×2")


SHOWN: list[tuple[list[Job], dict[str, Any], str, RunState]] = [
    ([], {}, "not launched", RunState.RUNNING),
    ([job(0, status="", secondary="")], {}, "launching", RunState.RUNNING),
    # Stop may still find a job of it, which the settlement reports.
    ([job(0, status="", secondary="")], {"execution": "ABORTED", "ended_after": 50}, "launching", RunState.STOPPING),
    ([job(0, status="Deleting", secondary="")], {"execution": "ABORTED"}, "Deleting", RunState.STOPPING),
    ([job(0, secondary="Hibernating")], {}, "Hibernating", RunState.RUNNING),
    ([refused(0)], {"execution": "ABORTED", "decisions": {0: rerun(2)}}, "Failed", RunState.STOPPING),
]


def test_a_status_is_shown_as_it_is_and_what_has_no_status_by_what_is_known() -> None:
    for jobs, fields, shown, state in SHOWN:
        status = look(*jobs, **{"ended_after": 50 if "execution" in fields else None, **fields})
        assert (rows(status)[0].status, status.state) == (shown, state), (jobs, fields)


def test_a_status_says_since_when() -> None:
    begun = [Transition(at=f"2026-11-21T09:00:0{second}Z", secondary="Training") for second in (1, 2)]
    one = job(0)
    running = Job(0, one.attempt.model_copy(update={"history": tuple(begun), "launched_at": "2026-11-21T09:00:00Z"}))
    assert look(running).replicas[0].since == "2026-11-21T09:00:02Z"
    ended = Job(0, running.attempt.model_copy(update={"ended_at": "2026-11-21T09:00:03Z", "status": "Completed"}))
    assert look(ended).replicas[0].since == "2026-11-21T09:00:03Z"


ENDS: list[tuple[str, list[Job], Result | None, RunState]] = [
    ("SUCCEEDED", [job(0, status="Completed")], settled(Verdict.SUCCEEDED), RunState.SUCCEEDED),
    ("FAILED", [job(0, status="Failed")], settled(Verdict.FAILED), RunState.FAILED),
    ("ABORTED", [job(0, status="Stopping")], None, RunState.STOPPING),
    ("ABORTED", [job(0, status="Stopped")], None, RunState.STOPPING),
    ("ABORTED", [job(0, status="Stopped")], settled(Verdict.STOPPED), RunState.STOPPED),
    ("ABORTED", [], None, RunState.STOPPED),
    ("FAILED", [], None, RunState.FAILED),
    ("TIMED_OUT", [], None, RunState.FAILED),
]


def test_a_run_has_ended_when_its_jobs_have_and_it_is_settled() -> None:
    for execution, jobs, result, state in ENDS:
        found = look(*jobs, execution=execution, ended_after=50, result=result).state
        assert found is state, (execution, jobs, result)
    # What never comes, such as the event of a job's end, does not keep a watch for ever.
    for result in (None, settled(Verdict.STOPPED)):
        assert (
            look(job(0), execution="ABORTED", ended_after=0, now_after=3_600, result=result).state is RunState.STOPPED
        )


def commit(round_: int, losses: dict[int, float]) -> Commit:
    members = [member(rank, metrics={"loss": loss}) for rank, loss in losses.items()]
    return commit_of(members, run="digits", round=round_, committed_at="now", epochs=(1, 1))


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


def test_of_many_replicas_those_with_something_to_say_are_shown() -> None:
    status = look(
        *(job(rank, secondary="Interrupted" if rank == 70 else "Training") for rank in range(100)), replicas=100
    )
    shown, others = select(rows(status), 10)
    assert [row.rank for row in shown] == [*map(str, range(9)), "70"]
    assert others == "and 90 more: 90 Training"


def test_the_table_names_clusters_and_what_a_job_on_one_waits_for_or_holds() -> None:
    def on(secondary: str, **fields: Any) -> Job:
        cluster = ClusterJob(cluster="ml-cluster", namespace="team-a", queue="team-a-queue", **fields)
        return Job(1, job(1, secondary=secondary).attempt.model_copy(update={"cluster": cluster}))

    waits = look(job(0), on("WaitingForQuota"))
    heading, _, line = [line.text for line in status_lines(waits, 120, None)[1:4]]
    assert heading.split()[:4] == ["rank", "cluster", "attempt", "status"]
    assert line.split()[:2] == ["1", "ml-cluster"]
    assert ("waiting for quota" in line, line.endswith("in queue team-a-queue")) == (True, True)
    assert waits.replicas[1].state_in(RunState.RUNNING) is ReplicaState.PENDING
    assert "cluster" not in "".join(line.text for line in status_lines(look(job(0), job(1)), 120, None))
    trains = rows(look(on("Training", instances=2, least=1, most=4, restarts=2)))[1]
    assert trains.note == "2 instances of 1 to 4; restarted 2 times by the operator"
    restarts = rows(look(on("Restarting")))[1]
    assert (restarts.status, restarts.note, restarts.alert) == ("Restarting", "the operator restarts it", True)


# --- rates ------------------------------------------------------------------------------------------

ROUND_AT = 600.0
"""When the latest round was committed, in seconds from the start."""
PACE = Pace(
    rounds=10, round_seconds=30.0, longest_seconds=40.0, samples_per_second=15_000.0, by_rank=(10_000.0, 5_000.0)
)


def paced(
    *jobs: Job, after: float = ROUND_AT + 10, started: float = 0.0, ended: bool = False, **fields: Any
) -> RunStatus:
    """A run of which 20 of 80 rounds are committed, all at one pace; `fields` are those of the newest commit."""
    values: dict[str, Any] = {
        "committed_at": timestamps.text(START + timedelta(seconds=ROUND_AT)),
        "unit": "tokens",
        "expected_rounds": 80,
        "samples": 9e6,
        "pace": PACE,
        **fields,
    }
    progress = advance(Progress(), commit(20, {0: 1.0, 1: 1.0}).model_copy(update=values), 2)
    end: dict[str, Any] = {"execution": "SUCCEEDED", "ended_after": after} if ended else {}
    given = jobs or (job(0), job(1))
    return look(*given, now_after=after, started_after=started, progress=progress, **end)


@pytest.fixture
def ten_seconds_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is ten seconds after the latest round."""
    now = SimpleNamespace(now=lambda _: START + timedelta(seconds=ROUND_AT + 10), fromisoformat=datetime.fromisoformat)
    for module in (run_state, status_text):
        monkeypatch.setattr(module, "datetime", now)


@pytest.mark.usefixtures("ten_seconds_later")
def test_a_run_shows_its_rate_its_rounds_and_the_time_left() -> None:
    assert paced(expected_rounds=None).ends_at is None
    assert paced(committed_at="soon").samples_per_second is None
    replicas = paced(job(0), job(1, secondary="Interrupted")).replicas
    assert [ReplicaLine.of(replica, RunState.RUNNING).rate for replica in replicas] == ["10,000", "–"]
    status = paced()
    assert (status.samples_per_second, status.unit) == (15_000, "tokens")
    assert (status.expected_rounds, status.samples) == (80, 9e6)
    # 60 rounds of 30 seconds, of which ten seconds are over.
    assert status.ends_at == timestamps.text(START + timedelta(seconds=ROUND_AT + 60 * 30))
    assert headline(status) == "digits: running, 10:10, round 20 of 80, 15,000 tokens/s, 29 min 50 s left"
    assert "round 20 of 80: 2 of 2 replicas, 15,000 tokens/s, 29 min 50 s left, mean loss 1" in list(
        changes(None, status)
    )


def test_one_line_says_how_the_updates_of_the_last_round_agree() -> None:
    def shown(*metrics: dict[str, float]) -> list[str]:
        members = [member(rank, metrics=values) for rank, values in enumerate(metrics)]
        status = look(
            *(job(rank) for rank in range(len(metrics))),
            progress=advance(NO_PROGRESS, commit_of(members), len(members)),
        )
        assert "update" not in " ".join(row.metrics for row in rows(status))
        return [line.text for line in status_lines(status, 200, None) if line.text.startswith("updates: ")]

    def one(cosine: float, norm: float, **more: float) -> dict[str, float]:
        return {"update_cosine": cosine, "update_norm": norm, **more}

    lossy = {"codec_error": 0.12, "residual_share": 0.94}
    assert shown(one(0.4, 2.0), one(0.4, 2.5)) == ["updates: cosine 0.40; norm 2 to 2.5"]
    assert shown(one(0.5, 2.0, **lossy), one(0.6, 2.0, **lossy), one(-0.2, 2.0, **lossy)) == [
        "updates: cosine 0.30, -0.20 at least (replica 2); norm 2; codec error 12%, residual 94% of an update"
    ]
    assert shown({"loss": 0.5}) == []


@pytest.mark.usefixtures("ten_seconds_later")
def test_a_run_whose_data_are_divided_into_shards_says_how_many_have_counted() -> None:
    status = paced(data=DataProgress(shards=1_000, low=1_000, counted=((1_100, 1_412),)))
    assert "round 20 of 80, 312 of 1,000 shards of epoch 2, 15,000 tokens/s" in headline(status)
    assert status.data is not None
    assert status.data.model_dump() == {"epoch": 1, "done": 312, "shards": 1_000}


@pytest.mark.usefixtures("ten_seconds_later")
def test_a_run_that_stalls_says_for_how_long_it_has_had_no_round() -> None:
    status = paced(after=ROUND_AT + 121)
    assert (status.stalled, status.samples_per_second, status.ends_at) == (True, None, None)
    assert [replica.samples_per_second for replica in status.replicas] == [None, None]
    assert "round 20 of 80, no round for 10 s" in headline(status)
    assert not paced(after=ROUND_AT + 119).stalled


def test_a_run_that_has_ended_keeps_its_rate_and_a_continuation_shows_none_of_the_run_before_it() -> None:
    done = (job(0, 1, "Completed", "Completed"), job(1, 1, "Completed", "Completed"))
    status = paced(*done, after=ROUND_AT + 4_000, ended=True)
    assert (status.samples_per_second, status.stalled, status.ends_at) == (15_000.0, False, None)
    hours = 40_000.0
    early = paced(after=hours + 60, started=hours)
    assert (early.samples_per_second, early.stalled, early.ends_at) == (None, False, None)
    assert paced(after=hours + 121, started=hours).stalled, "by its own time"


def test_a_table_fits_into_its_width_and_rates_are_a_column_where_there_is_room() -> None:
    shown = [ReplicaLine.of(replica, RunState.RUNNING) for replica in paced().replicas]
    rows = [replace(HEADINGS, rate="tokens/s"), replace(shown[0], metrics="loss 1, accuracy 0.9482", note="a note")]
    assert lay_out(rows, 80)[1] == "   0        1  Training         20    10,000  loss 1, accuracy 0.9482  a note"
    assert lay_out(rows, 68)[1] == "   0        1  Training         20    10,000  loss 1, accur…  a note"
    assert "tokens/s" not in lay_out(rows, 40)[0]
    assert "tokens/s" not in lay_out([rows[0], replace(shown[0], rate="–")], 80)[0]
