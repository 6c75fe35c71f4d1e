"""The whole of Muster for tests: an embedded cloud with the stack in it, once per session."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.local import LocalCloud
from tests.support.deployed import Deployed
from tests.support.deployment import create_stack, synthesized
from tests.support.workshop import fast_settings

ROOT = Path(__file__).resolve().parents[2]

# Short, so that what a re-arming repairs is repaired while a test looks on; long enough for a cold start on a slow
# machine to come before it.
REARM_SECONDS = 12

# The schedule is far away: a run of its own accord would disturb the tests.
SETTINGS_TEXT = f"""
[runs]
rearm_seconds = {REARM_SECONDS}

[replicas]
image = "muster-local/python:latest"
instance_type = "ml.c5.xlarge"
kms_key_arn = "arn:aws:kms:us-east-1:000000000000:key/1234abcd"
vpc = {{ subnets = ["subnet-1", "subnet-2"], security_group_ids = ["sg-1"] }}
tags = {{ team = "research", stage = "test" }}

[schedules.nightly]
at = "cron(0 3 1 1 ? 2199)"
spec = {{ replicas = 1, entrypoint = ["python", "-c", "print('<time>')"] }}
"""
SETTINGS = tomllib.loads(SETTINGS_TEXT)


@pytest.fixture(scope="session")
def deployed_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """The stack on a cloud of its own. The CDK app runs once for all workers, and its CLI never."""
    folder = tmp_path_factory.mktemp("stack")
    # No test here depends on the grace, and a trainer at a gate does not hear of the signal.
    settings = fast_settings(code=(ROOT,), stop_grace_seconds=3.0)
    assembly = synthesized(tmp_path_factory, SETTINGS)
    with LocalCloud.start(folder / "cloud", settings) as cloud:
        yield Deployed(cloud, create_stack(cloud, assembly), folder / "gates")


@pytest.fixture
def stack(deployed_stack: Deployed) -> Iterator[Deployed]:
    """The deployed stack without faults and dead letters, with its calls counted from zero.

    Whatever a test left running is stopped.
    """
    deployed_stack.cloud.faults.clear()
    deployed_stack.letters.purge()
    deployed_stack.cloud.calls.reset()
    yield deployed_stack
    deployed_stack.cloud.faults.clear()
    deployed_stack.stop_everything()
