import pytest

from muster.contract.errors import ConfigurationError
from muster.control.runtime.function import read_environment
from muster.control.runtime.function_settings import FunctionEnvironment, PlanEnvironment

GOOD = {"MUSTER_BUCKET": "bucket", "MUSTER_JOB_PREFIX": "muster", "MUSTER_BUS": "bus", "PATH": "/bin"}
ROLE = {
    "MUSTER_REPLICA_ROLE_ARN": "arn:aws:iam::000000000000:role/replica",
    "MUSTER_LAUNCHES_PER_SECOND": "10",
    "MUSTER_TIMER_FUNCTION_ARN": "arn:aws:lambda:us-east-1:000000000000:function:timer",
    "MUSTER_TIMER_ROLE_ARN": "arn:aws:iam::000000000000:role/timer",
    "MUSTER_DEFAULTS": "{}",
}


def test_what_the_stack_sets_is_read():
    assert read_environment(FunctionEnvironment, GOOD).job_prefix == "muster"
    assert read_environment(PlanEnvironment, {**GOOD, **ROLE}).defaults == "{}"


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, ["MUSTER_BUCKET", "MUSTER_JOB_PREFIX", "MUSTER_BUS", "MUSTER_REPLICA_ROLE_ARN"]),
        ({**GOOD, **ROLE, "MUSTER_BUCKET": ""}, ["MUSTER_BUCKET"]),
        ({**GOOD, **ROLE, "MUSTER_JOB_PREFIX": "has-hyphen"}, ["MUSTER_JOB_PREFIX"]),
        ({**GOOD, **ROLE, "MUSTER_REPLICA_ROLE_ARN": "role/replica-of-the-stack"}, ["MUSTER_REPLICA_ROLE_ARN"]),
        ({**GOOD, **ROLE, "MUSTER_DEFAULTS": ""}, ["MUSTER_DEFAULTS"]),
        ({**GOOD, **ROLE, "MUSTER_LAUNCHES_PER_SECOND": "0"}, ["MUSTER_LAUNCHES_PER_SECOND"]),
    ],
)
def test_what_is_missing_or_wrong_is_named(environment, words):
    with pytest.raises(ConfigurationError) as caught:
        read_environment(PlanEnvironment, environment)
    assert [word for word in words if word not in str(caught.value)] == []
