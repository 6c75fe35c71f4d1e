from datetime import UTC, datetime, timedelta

import pytest

from muster.contract.run.record import Decision, Next
from muster.contract.run.workflow_history import WAIT_PIECE_SECONDS
from muster.control.aws.tokens import remaining_delay, workflow_state
from muster.control.runtime import clock

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _clock_stands(monkeypatch):
    monkeypatch.setattr(clock, "seconds_since", lambda moment: (NOW - datetime.fromisoformat(moment)).total_seconds())


def rerun(delay: int, decided_seconds_ago: float = 0) -> Decision:
    decided = clock.isoformat(NOW - timedelta(seconds=decided_seconds_ago))
    return Decision(next=Next.RERUN, attempt=2, delay_seconds=delay, decided_at=decided, reason="spot")


@pytest.mark.parametrize(
    ("delay", "ago", "left"), [(0, 0, 0), (60, 0, 60), (60, 0.5, 60), (60, 30, 30), (60, 30.5, 30), (60, 90, 0)]
)
def test_what_is_left_of_a_wait(delay, ago, left):
    assert remaining_delay(rerun(delay, ago)) == left


def test_a_long_wait_is_served_in_pieces_so_that_a_stop_is_noticed():
    assert workflow_state("run", 3, rerun(86_400))["delay_seconds"] == WAIT_PIECE_SECONDS
    assert workflow_state("run", 3, rerun(86_400, 86_390))["delay_seconds"] == 10


def test_the_workflow_gets_all_that_its_states_read():
    state = workflow_state("run", 3, rerun(0))
    assert state == {"run": "run", "rank": 3, "attempt": 2, "next": "rerun", "delay_seconds": 0, "reason": "spot"}
