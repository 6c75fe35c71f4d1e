"""The run of a verification: its price has a bound, and nothing that costs money is repeated beyond it."""

from __future__ import annotations

import pytest

from muster.client.launch.dry_run import dry_run
from muster.client.verify.own_run import INSTANCE_TYPE, MAX_RUNTIME_SECONDS, own_spec, promise, promise_line
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.errors import SpecError


def test_the_run_costs_less_than_ten_cents_and_says_what_of() -> None:
    found = promise(dry_run(own_spec("v", INSTANCE_TYPE, None)))
    hourly = SHIPPED_PRICES.usd_per_hour[INSTANCE_TYPE]
    # To the time limit, 120 s from SIGTERM to SIGKILL, 60 s to upload.
    assert found.usd == pytest.approx(4 * (MAX_RUNTIME_SECONDS + 120 + 60) / 3600 * hourly + 0.005)
    assert found.usd < 0.10
    line = promise_line(found)
    assert line.startswith(
        "The run costs at most $0.097: 4 training jobs of at most 9 minutes each, and 3 minutes to stop"
    )
    assert "about 10 minutes" in line


def test_a_type_without_a_price_has_no_bound() -> None:
    found = promise(dry_run(own_spec("v", "ml.p9.large", None)))
    assert found.usd is None
    assert promise_line(found).startswith("The price is not known: 4 training jobs")


def test_only_the_failure_on_purpose_is_billed_twice() -> None:
    spec = own_spec("v", INSTANCE_TYPE, "image:1")
    unbilled = {FailureClass.CAPACITY, FailureClass.QUOTA, FailureClass.THROTTLE}
    billed = {item: spec.budget(item).max_reruns for item in spec.reruns if item not in unbilled}
    assert {item for item, reruns in billed.items() if reruns} == {FailureClass.USER_CODE}
    assert spec.image == "image:1"


def test_an_instance_type_that_cannot_be_is_refused_as_in_a_spec() -> None:
    with pytest.raises(SpecError, match="instance_type"):
        own_spec("v", "m5.large", None)
