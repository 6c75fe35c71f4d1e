from datetime import UTC, datetime, timedelta

import pytest

from muster.contract.history import WAIT_PIECE_SECONDS
from muster.contract.record import Decision, Next
from muster.control import clock
from muster.control.tokens import remaining_delay, workflow_state


def rerun(delay: int, decided_seconds_ago: float = 0) -> Decision:
    decided = clock.isoformat(datetime.now(UTC) - timedelta(seconds=decided_seconds_ago))
    return Decision(next=Next.RERUN, attempt=2, delay_seconds=delay, decided_at=decided, reason="spot")


@pytest.mark.parametrize(
    ("delay", "ago", "least", "most"), [(0, 0, 0, 0), (60, 0, 59, 60), (60, 30, 29, 30), (60, 90, 0, 0)]
)
def test_what_is_left_of_a_wait(delay, ago, least, most):
    assert least <= remaining_delay(rerun(delay, ago)) <= most


def test_a_long_wait_is_served_in_pieces_so_that_a_stop_is_noticed():
    assert workflow_state("run", 3, rerun(86_400))["delay_seconds"] == WAIT_PIECE_SECONDS
    assert workflow_state("run", 3, rerun(86_400, 86_390))["delay_seconds"] <= 10


def test_the_workflow_gets_all_that_its_states_read():
    state = workflow_state("run", 3, rerun(0))
    assert state == {"run": "run", "rank": 3, "attempt": 2, "next": "rerun", "delay_seconds": 0, "reason": "spot"}
