from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.contract.spec.spec_reader import parse_spec
from muster.contract.training.ranks import parse_ranks, show_ranks
from tests.support.full_specs import channel
from tests.support.job_requests import requests

BASE = {"replicas": 4, "trainer": "a.b:c", "image": "image:1"}


def types(**fields):
    return [request["ResourceConfig"].get("InstanceType") for request in requests(parse_spec({**BASE, **fields}))]


def test_ranks_have_types_environment_and_channels_of_their_own():
    spec = parse_spec(
        {
            **BASE,
            "environment": {"A": "common", "B": "common"},
            "input_data_config": [channel("train"), channel("test")],
            "overrides": {
                "1,3": {"environment": {"A": "own"}},
                "2": {"input_data_config": [channel("train", content_type="own"), channel("extra")]},
            },
        }
    )
    first, second, third, fourth = requests(spec)
    assert [request["Environment"]["A"] for request in (first, second, fourth)] == ["common", "own", "own"]
    assert fourth["Environment"]["B"] == "common"
    assert [item["ChannelName"] for item in third["InputDataConfig"]] == ["train", "test", "extra"]
    assert third["InputDataConfig"][0]["ContentType"] == "own"
    assert "ContentType" not in first["InputDataConfig"][0]


def test_a_type_of_its_own_replaces_fallbacks_and_preferences_too():
    # The requests of the helper come after 0, 1, 2 and 3 shortages.
    assert types(instance_type="ml.g5.xlarge", fallback_instance_types=["ml.g6.xlarge"]) == [
        "ml.g5.xlarge",
        "ml.g6.xlarge",
        "ml.g5.xlarge",
        "ml.g6.xlarge",
    ]
    own = {
        "1": {"instance_type": "ml.p3.2xlarge"},
        "2": {"instance_type": "ml.a.x", "fallback_instance_types": ["ml.b.x"]},
    }
    assert types(fallback_instance_types=["ml.g6.xlarge"], overrides=own)[1:3] == ["ml.p3.2xlarge", "ml.a.x"]
    assert types(instance_preferences=[{"instance_type": "ml.g5.xlarge"}], overrides=own)[:2] == [None, "ml.p3.2xlarge"]


@pytest.mark.parametrize(
    ("ranks", "text"), [([0], "0"), ([0, 1, 2, 3], "0-3"), ([0, 2, 8, 9, 10], "0,2,8-10"), ([], "")]
)
def test_ranks_are_shown_as_they_are_written(ranks, text):
    assert show_ranks(ranks) == text


@given(st.sets(st.integers(0, 200), min_size=1))
def test_what_is_shown_can_be_read(ranks):
    assert [rank for part in parse_ranks(show_ranks(sorted(ranks))) for rank in part] == sorted(ranks)
