from __future__ import annotations

import pytest

from muster.contract.errors import SpecError
from muster.contract.spec.run_limits import RUN_MAX_SECONDS, Timer
from muster.contract.spec.spec_reader import parse_spec

RUN = {"replicas": 4, "trainer": "m:f"}


def test_alarms_ring_for_what_the_spec_limits_and_for_nothing_else():
    assert parse_spec(RUN).timers() == {}
    gate = {"replicas": 4, "within_seconds": 600}
    assert parse_spec({**RUN, "launch_gate": gate, "deadline_seconds": RUN_MAX_SECONDS}).timers() == {
        Timer.LAUNCH_GATE: 600,
        Timer.DEADLINE: RUN_MAX_SECONDS,
    }


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"launch_gate": {"replicas": 5, "within_seconds": 9}}, "launch_gate.replicas: found 5; at most replicas (4)"),
        ({"launch_gate": {"replicas": 0, "within_seconds": 9}}, "launch_gate.replicas: found 0; at least 1"),
        ({"launch_gate": {"replicas": 1, "within_seconds": 0}}, "launch_gate.within_seconds: found 0; at least 1"),
        (
            {"launch_gate": {"replicas": 1, "within_seconds": 60}, "deadline_seconds": 60},
            "launch_gate.within_seconds: found 60; less than deadline_seconds (60); lower it",
        ),
        ({"deadline_seconds": 0}, "deadline_seconds: found 0; at least 1"),
        ({"deadline_seconds": RUN_MAX_SECONDS + 1}, "deadline_seconds: found 31536001; at most 31,536,000; lower it"),
    ],
)
def test_what_a_limit_cannot_be_is_said_in_one_line(fields, words):
    with pytest.raises(SpecError) as refused:
        parse_spec({**RUN, **fields})
    assert words in str(refused.value)
