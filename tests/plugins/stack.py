"""The whole of Muster for tests: an embedded cloud with the stack in it, once per session."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.infra.deploy.deployment import Assembly
from muster.infra.settings.settings_file import parse_settings
from muster.infra.settings.stack_settings import Platform
from muster.local import LocalCloud
from tests.support.deployed import Deployed
from tests.support.once import once
from tests.support.workshop import fast_settings

ROOT = Path(__file__).resolve().parents[2]

# Short, so that what a re-arming repairs is repaired while a test looks on; long enough for a cold start on a slow
# machine to come before it.
REARM_SECONDS = 12

# Far away: a run of its own accord would disturb the tests.
SCHEDULES = {
    "nightly": {
        "at": "cron(0 3 1 1 ? 2199)",
        "spec": {"replicas": 1, "entrypoint": ["python", "-c", "print('<time>')"]},
    }
}
SETTINGS = {
    "runs": {"rearm_seconds": REARM_SECONDS},
    "replicas": {
        "image": "muster-local/python:latest",
        "instance_type": "ml.c5.xlarge",
        "kms_key_arn": "arn:aws:kms:us-east-1:000000000000:key/1234abcd",
        "vpc": {"subnets": ["subnet-1", "subnet-2"], "security_group_ids": ["sg-1"]},
        "tags": {"team": "research", "stage": "test"},
    },
    "schedules": SCHEDULES,
}


@pytest.fixture(scope="session")
def deployed_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """The stack, deployed with the real CDK CLI, and synthesized once for all workers."""
    folder = tmp_path_factory.mktemp("stack")
    # No test here depends on the grace, and a trainer at a gate does not hear of the signal.
    settings = fast_settings(code=(ROOT,), stop_grace_seconds=3.0)
    with LocalCloud.start(folder / "cloud", settings) as cloud:
        shared = once(tmp_path_factory, "assembly", lambda made: _assembly(cloud, made).write())
        shutil.copytree(shared / "cdk.out", folder / "cdk.out")
        assembly = _assembly(cloud, folder)
        assembly.bootstrap(f"aws://{cloud.state.account_id}/{cloud.state.region}")
        yield Deployed(cloud, assembly.deploy(), folder / "gates")


def _assembly(cloud: LocalCloud, folder: Path) -> Assembly:
    """The stack in `folder`; the same one for every cloud."""
    return Assembly(
        cloud.environment(),
        target=Platform.LOCAL,
        settings=parse_settings(SETTINGS, Platform.LOCAL),
        outputs=folder / "outputs.json",
        log=folder / "cdk.log",
    )


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
