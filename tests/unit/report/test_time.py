"""Where the time of a run's replicas went: in all, by round, and the sentences that say it."""

import base64
import re
from collections.abc import Sequence

import pytest

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import NOT_CREATED, Attempt, Transition
from muster.contract.run.commit import Commit
from muster.contract.run.time_use import Activity, TimeUse, spent_on
from muster.contract.timestamps import Timestamp
from muster.report.figures import clock
from muster.report.page_model import TimesView
from muster.report.time_split import TimeSplit, measured, time_sentences, time_split
from muster.report.time_table import KINDS, SHARES_MAX, TimeTable
from tests.support.round_commits import commit


def at(seconds: int) -> Timestamp:
    return Timestamp(f"2026-05-04T03:{seconds // 60:02}:{seconds % 60:02}.000Z")


def attempt(launched: int, ended: int | None, *steps: tuple[int, str], **fields: object) -> Attempt:
    return Attempt.model_validate(
        {
            "attempt": 1,
            "job": "job",
            "launched_at": at(launched),
            "ended_at": None if ended is None else at(ended),
            "status": "InProgress" if ended is None else "Completed",
            "history": tuple(Transition(at=at(second), secondary=name) for second, name in steps),
            **fields,
        }
    )


def split(
    attempts: Sequence[Attempt], use: TimeUse | None = None, *, ended: bool = True, until: int = 600
) -> TimeSplit:
    return time_split({0: attempts}, use, (at(0), at(until)), ended=ended)


def words(split: TimeSplit) -> str:
    return " ".join(time_sentences(split))


FULL = attempt(
    10,
    600,
    (12, "Starting"),
    (15, "Pending"),
    (100, "Downloading"),
    (130, "DownloadingTrainingImage"),
    (150, "Training"),
    (590, "Uploading"),
    (600, "Completed"),
)


def test_a_job_waits_for_its_instance_then_loads_its_image_then_runs() -> None:
    found = split([FULL])
    assert (found.launching, found.starting, found.other, found.saving, found.total) == (100, 50, 440, 10, 600)
    assert words(found) == "Replica 0 took longest to launch: 1:40."


def test_what_the_contributions_say_divides_the_time_in_the_job() -> None:
    use = TimeUse(rounds=20, spent=(300_000, 80_000, 20_000, 5_000, 15_000), last=(0, 17), held_up=(0, 70_000))
    found = split([FULL], use)
    assert (found.training, found.waiting, found.exchanging, found.loading) == (300, 80, 20, 15)
    assert (found.saving, found.other) == (15, 20)
    assert re.findall(r"\d+%", words(found)) == ["50%", "17%", "13%", "8%", "3%", "3%", "2%", "2%", "88%"]
    assert "Replica 1 was the last in 17 of 20 rounds" in words(found)
    even = use.model_copy(update={"last": (7, 7, 6), "held_up": (28_000, 27_000, 25_000)})
    assert "was the last" not in words(split([FULL], even)), "no replica is to blame"
    assert clock(3725) == "1:02:05"


def test_refused_launches_and_the_time_before_a_rerun_are_waiting_for_capacity_or_quota() -> None:
    refused = attempt(0, 1, secondary=NOT_CREATED, failure_class=FailureClass.QUOTA, status="")
    lost = attempt(60, 200, (60, "Training"), status="Failed", failure_class=FailureClass.INFRASTRUCTURE)
    again = attempt(260, 600, (260, "Training"))
    found = split([refused, lost, again])
    assert (found.launching, found.other) == (1 + 59 + 60, 140 + 340)
    # Of a run in progress, a replica whose attempt has failed waits for the next one.
    assert split([refused, lost], ended=False).launching == 60 + 400
    assert split([refused, lost]).launching == 60
    assert split([], ended=False).launching == 600


def test_contributions_that_say_more_than_the_jobs_have_lasted_are_scaled() -> None:
    lies = TimeUse(rounds=1, spent=(10**16, 10**16))
    found = split([FULL], lies)
    assert (found.training, found.waiting, found.other) == pytest.approx((220, 220, 0))
    assert found.total == pytest.approx(600)
    odd = attempt(10, 600, (12, "Starting")).model_copy(update={"ended_at": "yesterday"})
    assert split([odd]).total == 12


def test_the_waiting_in_the_newest_round_follows_from_the_arrivals() -> None:
    use = TimeUse(rounds=3, spent=(1000, 500), last=(0, 3), held_up=(0, 500))
    last = {"time_use": use, "arrivals": (0.0, 1.0, 4.0), "last": 1, "absent": ()}
    made = commit(3, {0: {}, 1: {}}).model_copy(update=last)
    assert measured(made, 2) == use.model_copy(update={"spent": (1000, 7500), "held_up": (0, 7500)})
    # A rank that the run does not have is left out.
    more = made.model_copy(update={"last": 9, "time_use": use.model_copy(update={"last": (1,) * 9})})
    found = measured(more, 2)
    assert found is not None
    assert (found.last, found.held_up) == ((1, 1), (0, 500))


Spent = dict[int, dict[Activity, float]]
T, W, E, S, L = Activity.TRAINING, Activity.WAITING, Activity.EXCHANGING, Activity.SAVING, Activity.LOADING


def timed(number: int, spent: Spent, *, last: int | None = None) -> Commit:
    made = commit(number, {rank: {} for rank in spent})
    members = (one.model_copy(update={"time": spent_on(spent[one.rank])}) for one in made.members)
    return made.model_copy(update={"members": tuple(members), "last": last})


def shares(view: TimesView | None, rank: int, row: int) -> dict[Activity, float]:
    """The shares of a round, as far as a byte is exact."""
    assert view is not None
    raw = base64.b64decode(view.shares)
    width = len(raw) // len(view.by_rank[0])
    begin = rank * width + row * KINDS
    found = zip(Activity, raw[begin : begin + KINDS], strict=True)
    return {kind: round(value / 255, 2) for kind, value in found if value}


def test_the_waiting_belongs_to_the_round_before_the_contribution_that_says_it() -> None:
    table = TimeTable(2)
    table.add(timed(1, {0: {L: 4, T: 6}, 1: {L: 4, T: 26}}, last=1), 40, 1)
    table.add(timed(2, {0: {T: 6, W: 20, E: 2}, 1: {T: 18, W: 0.5, E: 2}}, last=1), 20, 1)
    view = table.view()
    assert view is not None
    assert shares(view, 0, 0) == {T: 0.15, W: 0.5, L: 0.1}
    assert shares(view, 1, 0) == {T: 0.65, W: 0.01, L: 0.1}
    # Of the last round, the first one has waited for what is left; the last one has not.
    assert shares(view, 0, 1) == {T: 0.3, W: 0.6, E: 0.1}
    assert shares(view, 1, 1) == {T: 0.9, E: 0.1}
    means = dict(zip(Activity, view.means, strict=True))
    assert means == {T: (16.0, 12.0), W: (10.25, 6.0), E: (0.0, 2.0), S: (0.0, 0.0), L: (4.0, 0.0)}
    assert view.by_rank == ((12.0, 44.0), (32.0, 0.5), (2.0, 2.0), (0.0, 0.0), (4.0, 4.0))


def test_rounds_that_were_not_read_count_as_those_that_were() -> None:
    table = TimeTable(1)
    table.add(commit(1, {0: {}}), 10, 1)  # of an older version, whose commits say no times
    assert table.view() is None
    table.add(timed(2, {0: {T: 10}}), 10, 1)
    table.add(timed(12, {0: {T: 6, W: 3, E: 1}}), 100, 10)
    view = table.view()
    assert shares(view, 0, 2) == {T: 0.6, W: 0.3, E: 0.1}
    assert view is not None
    assert (view.by_rank[0], view.means[0][0]) == ((70.0,), None)


def test_what_a_replica_says_of_its_time_is_bounded_by_the_round() -> None:
    table = TimeTable(2)
    table.add(timed(1, {0: {T: 1e9}, 1: {T: 5}, 7: {T: 5}}), 10, 1)
    table.add(timed(2, {0: {W: 1e9}, 1: {T: 5}}), 0, 1)
    view = table.view()
    assert shares(view, 0, 0) == {T: 1.0, W: 1.0}
    assert shares(view, 0, 1) == {}
    assert view is not None
    assert view.model_dump_json()


def test_the_table_of_a_large_run_is_small() -> None:
    replicas = 2_000
    table, made = TimeTable(replicas), timed(1, {rank: {T: 1, W: 1} for rank in range(replicas)})
    for number in range(1, 51):
        table.add(made, number % 3, 1)
    view = table.view()
    assert view is not None
    assert len(view.shares) <= 4 / 3 * (SHARES_MAX + KINDS * replicas)
    # Merged rounds have the mean of their shares, weighted with their durations.
    assert shares(view, replicas - 1, 0)[T] == pytest.approx(2 / 3, abs=0.35)
