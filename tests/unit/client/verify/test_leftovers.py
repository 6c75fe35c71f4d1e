"""What a verification removes after its run, and what it leaves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from muster.client.verify import leftovers
from muster.client.verify.services import Account
from muster.client.verify.verification import Outcome
from muster.contract.layout import RunLayout
from tests.memory.harness import RUN, ControlHarness
from tests.support.memory_client import client_of


@pytest.fixture
def harness() -> Iterator[ControlHarness]:
    with ControlHarness().installed() as harness:
        yield harness


def test_objects_stay_while_a_job_of_the_run_is_stopping(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SageMaker would write the objects of a job that ends later again."""
    harness.plan()
    harness.arm()
    harness.cloud.training.stop_by_user(harness.job())
    harness.cloud.workflow.fail(RUN, "States.Runtime")
    assert harness.cloud.training.names("Stopping") == [harness.job()]
    monkeypatch.setattr(leftovers, "JOBS_END_WITHIN_SECONDS", 0.0)
    key, s3 = f"{RunLayout(RUN).rendezvous}x", harness.cloud.client("s3")
    s3.put_object(Bucket=harness.cloud.bucket, Key=key, Body=b"x")
    found = leftovers.gather_leftovers(Account(client_of(harness.cloud)), RUN, (), 0.0)
    assert (found.running, found.execution_running, found.removed) == ((harness.job(),), False, 0)
    assert s3.head_object(Bucket=harness.cloud.bucket, Key=key)["ContentLength"] == 1
    checks = {check.name: check.outcome for check in leftovers.judge_leftovers(found)}
    assert checks == {
        leftovers.JOBS: Outcome.FAILED,
        leftovers.SCHEDULES: Outcome.UNCHECKED,
        leftovers.OBJECTS: Outcome.INFO,
    }
