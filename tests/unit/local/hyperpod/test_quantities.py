"""Kubernetes' quantities."""

from __future__ import annotations

from fractions import Fraction

import pytest

from muster.local.hyperpod.quantities import quantity, requests_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", Fraction(1, 2)),
        ("2", Fraction(2)),
        ("1.5", Fraction(3, 2)),
        ("1Gi", Fraction(2**30)),
        ("100Mi", Fraction(100 * 2**20)),
        ("1k", Fraction(1000)),
        ("2e3", Fraction(2000)),
        ("1E", Fraction(10**18)),
        ("5n", Fraction(5, 10**9)),
        (8, Fraction(8)),
    ],
)
def test_a_quantity_is_a_number(text: object, value: Fraction) -> None:
    assert quantity(text) == value


@pytest.mark.parametrize("text", ["", "1GB", "one", "1 Gi", "--1"])
def test_other_words_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        quantity(text)


def test_a_pod_asks_for_its_limits_where_it_has_no_requests() -> None:
    resources = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}
    found = requests_of({"containers": [{"resources": resources}, {}]})
    assert found == {"cpu": 1, "memory": 2**30, "pods": 1}
