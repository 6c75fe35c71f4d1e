"""What a spec says of seats that come and go: how it is read, and what is refused, with nothing said twice."""

from typing import Any

import pytest

from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.spec.elastic import QUORUM
from muster.contract.spec.spec_reader import parse_spec
from tests.support.refused_specs import refusal

RANGE = {"min": 2, "start": 4, "max": 8}
BASE: dict[str, Any] = {"replicas": RANGE, "trainer": "package.module:train"}
STEP = {"after_seconds": 60, "replicas": 6}


def test_a_range_is_the_number_of_seats_and_what_follows_from_it() -> None:
    spec = parse_spec({**BASE, "elastic": {"scale": [STEP]}}).resolved()
    assert spec.elastic is not None
    assert (spec.replicas, spec.elastic.min, spec.elastic.start, spec.min_participants) == (8, 2, 4, 2)
    assert (spec.on_replica_failure, spec.rendezvous.quorum) == ("continue", QUORUM)
    assert parse_spec({**BASE, "replicas": 8, "elastic": {"min": 2, "start": 4}}).resolved().elastic is not None
    # A plan that was stored is read again.
    assert parse_spec(spec.model_dump(mode="json", by_alias=True)) == spec
    # A number of participants is no share.
    fixed = parse_spec({**BASE, "rendezvous": {"min_participants": 2}}).resolved().rendezvous
    assert (fixed.min_participants, fixed.quorum) == (2, None)


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        (
            {"replicas": {"min": 4, "strat": 2, "max": True}, "elastic": {"scale": [STEP]}},
            [
                "replicas.strat: unknown field; replicas has min, start and max",
                "replicas.start: missing; write min, start and max, or one number for all three",
                "replicas.max: found True; a whole number from 1 to 10,000; correct it",
            ],
        ),
        ({"replicas": {**RANGE, "start": 9}}, ["replicas.start: found 9; at most replicas.max (8); lower it"]),
        ({"replicas": {**RANGE, "min": 5}}, ["replicas.min: found 5; at most replicas.start (4); lower it"]),
        (
            {"replicas": {"min": 4, "start": 2, "max": 1}},
            [
                "replicas.start: found 2; at most replicas.max (1); lower it",
                "replicas.min: found 4; at most replicas.start (2); lower it",
            ],
        ),
        (
            {"elastic": {"scale": [{**STEP, "replicas": 99}, {**STEP, "replicas": 1}]}},
            [
                (
                    "elastic.scale[0].replicas: found 99; 2 to 8, the run's replicas.min and replicas.max; "
                    "write another number"
                ),
                (
                    "elastic.scale[1].replicas: found 1; 2 to 8, the run's replicas.min and replicas.max; "
                    "write another number"
                ),
                "elastic.scale: the times do not ascend; sort the steps by after_seconds",
            ],
        ),
        (
            {"on_replica_failure": "terminate"},
            [
                (
                    "on_replica_failure: terminate is set where replicas come and go; leave it out, or write one "
                    "number of replicas"
                )
            ],
        ),
        (
            {"elastic": {"budget_usd_per_hour": 5}, "instance_type": "ml.new.xlarge"},
            [
                (
                    f"elastic.budget_usd_per_hour: the price table of {SHIPPED_PRICES.as_of} has no price for "
                    "ml.new.xlarge; write usd_per_hour: {ml.new.xlarge: DOLLARS}; `muster plan --deployed` without "
                    "elastic.budget_usd_per_hour shows today's price"
                )
            ],
        ),
        (
            {"rendezvous": {"min_participants": 3}},
            ["rendezvous.min_participants: found 3; at most replicas.min (2); lower it, or raise replicas.min"],
        ),
        ({"min_replicas": 3}, ["min_replicas: found 3; replicas.min (2); leave it out"]),
        (
            {"trainer": None, "entrypoint": ["python", "train.py"]},
            [
                (
                    "replicas: min, start and max are set without trainer; write one number: only replicas with a "
                    "trainer can join and leave"
                )
            ],
        ),
        (
            {"sweep": {"kwargs.rate": [1] * 8}},
            ["replicas: min, start and max are set together with sweep; write one number"],
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_what_is_allowed(fields: dict[str, Any], lines: list[str]) -> None:
    assert [str(problem) for problem in refusal({**BASE, **fields}).problems] == lines
