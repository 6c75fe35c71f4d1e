"""Rates of calls on the embedded cloud."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from muster.local import LocalCloud
from muster.local.call_rates import CallRate
from tests.support.workshop import Workshop


@pytest.fixture(autouse=True)
def default_rates(cloud: LocalCloud) -> Iterator[None]:
    yield
    cloud.rates.reset()


def user(cloud: LocalCloud, service: str) -> Any:
    """A client as a user has it: its calls count, and it tries each once."""
    once = Config(retries={"total_max_attempts": 1})
    return cloud.session().client(service, config=once, **cloud.client_options())


def answers(call: Any, tries: int) -> list[str]:
    found = []
    for _ in range(tries):
        try:
            call()
            found.append("")
        except ClientError as error:
            found.append(error.response["Error"]["Code"])
    return found


def test_an_account_lists_training_jobs_twice_a_second(cloud: LocalCloud) -> None:
    cloud.rates.reset()
    found = answers(user(cloud, "sagemaker").list_training_jobs, 30)
    assert found[:4] == [""] * 4
    assert "ThrottlingException" in found


def test_a_rate_can_be_set(cloud: LocalCloud) -> None:
    cloud.rates.set(CallRate(service="states", operation="ListStateMachines", per_second=0.001, burst=2))
    assert answers(user(cloud, "stepfunctions").list_state_machines, 3) == ["", "", "ThrottlingException"]


def test_a_test_that_looks_on_uses_no_rate(workshop: Workshop) -> None:
    workshop.cloud.rates.set(CallRate(service="sagemaker", operation="*", per_second=0.001, burst=1))
    assert answers(workshop.sagemaker.list_training_jobs, 10) == [""] * 10
