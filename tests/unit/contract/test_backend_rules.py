"""A spec that names a backend which this installation lacks."""

from typing import Any

import pytest

from muster.contract.errors import SpecError
from muster.contract.spec import backend_rules
from muster.contract.spec.spec_reader import parse_spec

BASE = {"replicas": 2, "trainer": "package.module:train", "image": "image:1", "instance_type": "ml.m5.large"}


@pytest.mark.parametrize(
    "fields",
    [
        {"backend": "hyperpod"},
        {"hyperpod": {"cluster": "hyper"}},
        {"overrides": {"1": {"backend": "hyperpod"}}},
    ],
)
def test_without_rules_for_it_only_training_jobs_run(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend_rules, "_offered", tuple)
    with pytest.raises(SpecError) as refused:
        parse_spec({**BASE, **fields})
    assert [problem.field for problem in refused.value.problems] == ["backend"]
    assert parse_spec({**BASE, "backend": "training-job"}).replicas == 2
