"""Where the time of a run's replicas went, and the sentences that say it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import NOT_CREATED, Attempt, Transition
from muster.contract.run.commit import Commit
from muster.contract.run.time_use import Activity, TimeUse
from muster.contract.timestamps import Timestamp
from muster.report.figures import clock
from muster.report.time_split import TimeSplit, measured, time_sentences, time_split
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
    assert (found.launching, found.starting, found.other, found.saving) == (100, 50, 440, 10)
    assert found.total == 600
    assert (found.longest_launch_rank, found.longest_launch) == (0, 100)


def test_what_the_contributions_say_divides_the_time_in_the_job() -> None:
    use = TimeUse(rounds=20, spent=(300_000, 80_000, 20_000, 5_000, 15_000), last=(0, 17), held_up=(0, 70_000))
    found = split([FULL], use)
    assert (found.training, found.waiting, found.exchanging, found.loading) == (300, 80, 20, 15)
    assert (found.saving, found.other) == (15, 20)
    assert words(found) == (
        "50% of the time of all replicas was training, 17% waiting for capacity or quota, 13% waiting for other "
        "replicas, 8% downloading the image and the data, 3% exchanging, 3% outside of rounds, 2% saving, 2% loading. "
        "Replica 1 was the last in 17 of 20 rounds: 88% of the waiting was for it. "
        "Replica 0 waited longest for capacity or quota: 1:40."
    )


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


def test_a_sentence_names_nobody_where_no_replica_is_to_blame() -> None:
    even = TimeUse(rounds=20, spent=(300_000, 80_000), last=(7, 7, 6), held_up=(28_000, 27_000, 25_000))
    assert "was the last" not in words(split([FULL], even))
    assert words(TimeSplit()) == ""
    # Without rounds, only what the jobs say.
    assert words(split([FULL])) == "Replica 0 waited longest for capacity or quota: 1:40."


def test_contributions_that_say_more_than_the_jobs_have_lasted_are_scaled() -> None:
    lies = TimeUse(rounds=1, spent=(10**16, 10**16))
    found = split([FULL], lies)
    assert (found.training, found.waiting, found.other) == pytest.approx((220, 220, 0))
    assert found.total == pytest.approx(600)
    odd = attempt(10, 600, (12, "Starting")).model_copy(update={"ended_at": "yesterday"})
    assert split([odd]).total == 12


def test_the_waiting_in_the_newest_round_follows_from_the_arrivals() -> None:
    use = TimeUse(rounds=3, spent=(1000, 500), last=(0, 3), held_up=(0, 500))
    made = commit(3, {0: {}, 1: {}}).model_copy(
        update={"time_use": use, "arrivals": (0.0, 1.0, 4.0), "last": 1, "absent": ()}
    )
    found = measured(made, 2)
    assert found is not None
    assert (found.spent, found.held_up) == ((1000, 7500), (0, 7500))
    assert measured(made.model_copy(update={"time_use": None}), 2) is None
    # A rank that the run does not have is left out.
    more = measured(made.model_copy(update={"last": 9, "time_use": use.model_copy(update={"last": (1,) * 9})}), 2)
    assert more is not None
    assert (more.last, more.held_up) == ((1, 1), (0, 500))


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (250, "4:10"), (3725, "1:02:05")])
def test_waits_are_minutes_and_seconds(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_activities_and_the_fields_of_the_split_have_the_same_names() -> None:
    assert {kind.value for kind in Activity} <= TimeSplit.model_fields.keys()


@pytest.mark.parametrize("arrivals", ["[0, 1e308]", "[NaN, 1]", "[0, Infinity]", "[0, -5]"])
def test_arrivals_that_no_round_has_count_for_nothing(arrivals: str) -> None:
    use = TimeUse(rounds=1, spent=(5,))
    text = commit(1, {0: {}}).model_copy(update={"time_use": use}).to_json().decode()
    begin, _, rest = text.partition('"arrivals"')
    lies = Commit.model_validate_json(f'{begin}"arrivals":{arrivals},{rest.partition("],")[2]}')
    assert len(lies.arrivals) == 2
    assert sum(measured(lies, 1).spent) == 5  # type: ignore[union-attr]
