import pytest

from muster.contract.errors import ConfigurationError
from muster.control.runtime.function import read_environment, time_left
from muster.control.runtime.function_settings import PlanEnvironment
from tests.memory import VirtualClock

GOOD = {
    "MUSTER_BUCKET": "bucket",
    "MUSTER_JOB_PREFIX": "muster",
    "MUSTER_BUS": "bus",
    "MUSTER_REPLICA_ROLE_ARN": "arn:aws:iam::000000000000:role/replica",
    "MUSTER_LAUNCHES_PER_SECOND": "10",
    "MUSTER_TIMER_FUNCTION_ARN": "arn:aws:lambda:us-east-1:000000000000:function:timer",
    "MUSTER_TIMER_ROLE_ARN": "arn:aws:iam::000000000000:role/timer",
    "MUSTER_DEFAULTS": "{}",
}


def test_a_variable_that_is_missing_or_wrong_is_named():
    assert read_environment(PlanEnvironment, {**GOOD, "PATH": "/bin"}).job_prefix == "muster"
    with pytest.raises(ConfigurationError) as missing:
        read_environment(PlanEnvironment, {})
    assert [name for name in ("MUSTER_BUCKET", "MUSTER_BUS", "MUSTER_DEFAULTS") if name not in str(missing.value)] == []
    for name, value in (
        ("MUSTER_BUCKET", ""),
        ("MUSTER_JOB_PREFIX", "has-hyphen"),
        ("MUSTER_REPLICA_ROLE_ARN", "role/replica-of-the-stack"),
        ("MUSTER_DEFAULTS", ""),
        ("MUSTER_LAUNCHES_PER_SECOND", "0"),
    ):
        with pytest.raises(ConfigurationError, match=name):
            read_environment(PlanEnvironment, {**GOOD, name: value})


def test_a_part_of_a_functions_time_is_kept_for_writing_its_result():
    """Whatever its time-out is, a function has time for its work."""

    class Invocation:
        def __init__(self, seconds):
            self.seconds = seconds

        def get_remaining_time_in_millis(self):
            return self.seconds * 1000

    with VirtualClock().install():
        for seconds, usable in ((900, 855), (15, 14.25)):
            assert time_left(Invocation(seconds)).remaining == pytest.approx(usable)
