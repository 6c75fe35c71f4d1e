"""How fast a run trains and when it ends, as status shows it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from muster.client.aws.reported import Execution, ExecutionStatus
from muster.client.cli.status_table import HEADINGS, lay_out
from muster.client.runs import run_state, status_text
from muster.client.runs.progress import advance
from muster.client.runs.run_status import Observation, Progress, RunStatus, run_status
from muster.client.runs.status_text import Row, changes, headline
from muster.contract import timestamps
from muster.contract.names import JobName
from muster.contract.run.attempt import Attempt
from muster.contract.run.commit import Commit, Member
from muster.contract.run.pace import Pace
from muster.contract.run.roll_up import ReplicaEntry

START = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
ROUND_AT = 600.0
"""When the latest round was committed, in seconds from the start."""
PACE = Pace(
    rounds=10, round_seconds=30.0, longest_seconds=40.0, samples_per_second=15_000.0, by_rank=(10_000.0, 5_000.0)
)


def entry(rank: int, secondary: str = "Training", status: str = "InProgress") -> ReplicaEntry:
    name = str(JobName("muster", "gpt", rank, 1))
    return ReplicaEntry(
        rank=rank, revision=1, attempts=(Attempt(attempt=1, job=name, status=status, secondary=secondary),)
    )


def progress(**fields: Any) -> Progress:
    members = tuple(
        Member(rank=rank, attempt=1, incarnation=1, epoch=1, weight=1.0, checksum="0" * 8) for rank in range(2)
    )
    defaults: dict[str, Any] = {
        "run": "gpt",
        "round": 20,
        "committed_at": timestamps.text(START + timedelta(seconds=ROUND_AT)),
        "count": 1,
        "members": members,
        "epochs": (1, 1),
        "unit": "tokens",
        "expected_rounds": 80,
        "samples": 9e6,
        "pace": PACE,
    }
    return advance(Progress(), Commit(**{**defaults, **fields}), 2)


def look(
    *entries: ReplicaEntry,
    after: float = ROUND_AT + 10,
    found: Progress | None = None,
    ended: bool = False,
    started: float = 0.0,
) -> RunStatus:
    now = START + timedelta(seconds=after)
    status = ExecutionStatus.SUCCEEDED if ended else ExecutionStatus.RUNNING
    began = START + timedelta(seconds=started)
    return run_status(
        Observation(
            run="gpt",
            execution=Execution("gpt", status, began, now if ended else None, 2, "", ""),
            entries={one.rank: one for one in entries or (entry(0), entry(1))},
            now=now,
            progress=found or progress(),
        )
    )


class Now(datetime):
    """Ten seconds after the latest round."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:  # noqa: ARG003
        return START + timedelta(seconds=ROUND_AT + 10)


@pytest.fixture(autouse=True)
def ten_seconds_later(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (run_state, status_text):
        monkeypatch.setattr(module, "datetime", Now)


def test_a_run_shows_its_rate_its_rounds_and_the_time_left() -> None:
    status = look()
    assert (status.samples_per_second, status.unit, status.expected_rounds, status.samples) == (
        15_000,
        "tokens",
        80,
        9e6,
    )
    # 60 rounds of 30 seconds, of which ten seconds are over.
    assert status.ends_at == timestamps.text(START + timedelta(seconds=ROUND_AT + 60 * 30))
    assert headline(status) == "gpt: running, 10:10, round 20 of 80, 15,000 tokens/s, 29 min 50 s left"
    assert "round 20 of 80: 2 of 2 replicas, 15,000 tokens/s, 29 min 50 s left" in list(changes(None, status))


def test_each_replica_shows_its_rate_while_it_trains() -> None:
    status = look(entry(0), entry(1, "Interrupted"))
    assert [replica.samples_per_second for replica in status.replicas] == [10_000.0, None]
    assert [Row.of(replica, status.state).rate for replica in status.replicas] == ["10,000", "–"]


def test_a_run_that_stalls_says_for_how_long_it_has_had_no_round() -> None:
    status = look(after=ROUND_AT + 121)
    assert (status.stalled, status.samples_per_second, status.ends_at) == (True, None, None)
    assert [replica.samples_per_second for replica in status.replicas] == [None, None]
    assert "round 20 of 80, no round for 10 s" in headline(status)
    assert not look(after=ROUND_AT + 119).stalled


def test_without_a_known_number_of_rounds_there_is_no_end() -> None:
    status = look(found=progress(expected_rounds=None))
    assert status.ends_at is None
    assert headline(status) == "gpt: running, 10:10, round 20, 15,000 tokens/s"


def test_commits_of_an_older_version_show_no_rate() -> None:
    status = look(found=progress(pace=None, expected_rounds=None, unit="samples", samples=None))
    assert (status.samples_per_second, status.stalled, status.ends_at) == (None, False, None)
    assert headline(status) == "gpt: running, 10:10, round 20"


def test_a_run_that_has_ended_keeps_its_last_rate_and_has_no_end_to_come() -> None:
    done = (entry(0, "Completed", "Completed"), entry(1, "Completed", "Completed"))
    status = look(*done, after=ROUND_AT + 4_000, ended=True)
    assert (status.samples_per_second, status.stalled, status.ends_at) == (15_000.0, False, None)
    assert [replica.samples_per_second for replica in status.replicas] == [10_000.0, 5_000.0]


def test_a_continuation_shows_no_rate_of_the_run_before_it_and_stalls_only_by_its_own_time() -> None:
    hours = 40_000.0
    early = look(after=hours + 60, started=hours)
    assert (early.samples_per_second, early.stalled, early.ends_at) == (None, False, None)
    assert look(after=hours + 121, started=hours).stalled


@pytest.mark.parametrize("committed_at", ["", "soon"])
def test_a_time_that_replicas_wrote_wrongly_is_left_out(committed_at: str) -> None:
    status = look(found=progress(committed_at=committed_at))
    assert (status.samples_per_second, status.ends_at, status.stalled) == (None, None, False)


def test_the_column_of_rates_is_there_where_there_is_a_rate_and_room() -> None:
    status = look()
    rows = [replace(HEADINGS, rate="tokens/s"), *(Row.of(replica, status.state) for replica in status.replicas)]
    assert lay_out(rows, 80) == [
        "rank  attempt  status        round  tokens/s  metrics       note",
        "   0        1  Training         20    10,000  –",
        "   1        1  Training         20     5,000  –",
    ]
    without = [replace(row, rate="–") for row in rows[1:]]
    assert "tokens/s" not in lay_out([rows[0], *without], 80)[0]
    assert "tokens/s" not in lay_out(rows, 40)[0]
