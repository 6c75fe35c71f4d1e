"""`checkpoints` of a spec: what a user can write, what reaches the replicas, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.contract.errors import SpecError
from muster.contract.run.plan import Place, Plan
from muster.contract.run.run_document import RunDocument
from muster.contract.spec.checkpoint_tiers import CheckpointTiers
from muster.contract.spec.own_loop import OWN_LOOP
from muster.contract.spec.spec_reader import parse_spec

BASE = {"replicas": 2, "trainer": "m:f", "image": "image:1"}


def document(**fields: Any) -> RunDocument:
    arn = "arn:aws:states:us-east-1:123456789012:execution:Muster:run"
    place = Place(bucket="bucket", role_arn="arn:aws:iam::123456789012:role/r", job_prefix="muster")
    plan = Plan.make("run", arn, "2026-11-22T00:00:00.000Z", place, parse_spec({**BASE, **fields}))  # type: ignore[arg-type]
    return RunDocument.of(Plan.from_json(plan.to_json(), "plan.json"))


def problems(checkpoints: Any, **fields: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        parse_spec({**BASE, "checkpoints": checkpoints, **fields})
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    "checkpoints",
    [
        {"memory_every": 10, "s3_every": 20},
        {"memory_every": 10},
        {"s3_every": 1},
        {"memory_every": 7, "s3_every": 7},
        {"memory_every": 10, "s3_every": 25},
    ],
)
def test_the_replicas_read_how_often_they_save(checkpoints: dict[str, int]) -> None:
    found = document(checkpoints=checkpoints).checkpoints
    assert found is not None
    assert found.model_dump(exclude_none=True) == checkpoints


def test_without_the_field_nothing_is_said_to_the_replicas() -> None:
    assert document().checkpoints is None
    assert b"checkpoints" not in document().to_json().replace(b"checkpoint_rounds", b"")


def test_a_document_of_a_newer_version_may_have_more_tiers() -> None:
    stored = json.loads(document(checkpoints={"s3_every": 5}).to_json())
    stored["checkpoints"]["tape_every"] = 1_000
    assert RunDocument.from_json(json.dumps(stored), "run.json").checkpoints == CheckpointTiers(s3_every=5)


@pytest.mark.parametrize(
    ("checkpoints", "words"),
    [
        ({}, ["checkpoints: neither memory_every nor s3_every is set"]),
        ({"memory_every": 0}, ["checkpoints.memory_every: found 0", "at least 1"]),
        ({"s3_every": 1_000_001}, ["checkpoints.s3_every: found 1000001", "1,000,000"]),
        ({"memory_every": 2.5}, ["checkpoints.memory_every"]),
        ({"memory_every": 20, "s3_every": 10}, ["checkpoints.s3_every: found 10", "at least memory_every (20)"]),
        ({"memory_evry": 20}, ["checkpoints.memory_evry", "memory_every"]),
    ],
)
def test_a_mistake_is_named_with_what_is_allowed(checkpoints: Any, words: list[str]) -> None:
    [problem] = problems(checkpoints)
    assert all(word in problem for word in words), problem


@pytest.mark.parametrize(
    "program",
    [
        {"trainer": None, "entrypoint": ["python", "train.py"]},
        {"trainer": OWN_LOOP, "kwargs": {"trainer": "m:f"}},
    ],
    ids=["an entrypoint", "a loop of its own"],
)
def test_a_program_whose_steps_nothing_counts_is_refused(program: dict[str, Any]) -> None:
    [problem] = problems({"memory_every": 10}, **program)
    assert "checkpoints: set without a trainer whose inner steps are counted" in problem
