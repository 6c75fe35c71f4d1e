"""`hook`: which programs can be hooked, what their replicas call, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from muster.contract.errors import SpecError
from muster.contract.run.job_request import REPLICA_ENTRYPOINT, training_job_request
from muster.contract.run.run_document import RunDocument
from muster.contract.run.source_delivery import BOOTSTRAP
from muster.contract.spec import hook
from muster.contract.spec.hook import HOOKED, hooked_program
from muster.contract.spec.spec_reader import parse_spec
from muster.replica.algorithms.algorithm import Algorithm
from tests.support.job_requests import plan_of

HOOKED_SPEC = {
    "replicas": 2,
    "hook": "huggingface",
    "entrypoint": ["python", "train.py", "--epochs", "3"],
    "kwargs": {"sync_every": 100, "momentum": 0.5},
}


def refused(**changes: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        parse_spec({key: value for key, value in {**HOOKED_SPEC, **changes}.items() if value is not None})
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("words", "program"),
    [
        (["python", "train.py"], ["train.py"]),
        (["/opt/conda/bin/python3.12", "-u", "train.py", "-m", "x"], ["train.py", "-m", "x"]),
        (["python3", "-m", "recipes.sft", "--lr", "1"], ["-m", "recipes.sft", "--lr", "1"]),
        (["torchrun", "train.py"], None),
        (["accelerate", "launch", "train.py"], None),
        (["bash", "train.sh"], None),
        (["python"], None),
        (["python", "-c", "print()"], None),
        (["python", "-m"], None),
    ],
)
def test_a_python_program_can_be_hooked(words: list[str], program: list[str] | None) -> None:
    assert hooked_program(words, []) == program


def test_the_replica_runs_the_program() -> None:
    plan = plan_of(parse_spec({**HOOKED_SPEC, "arguments": ["--seed", "1"]}))
    request: Any = training_job_request(plan, 1, 1)
    assert request["AlgorithmSpecification"]["ContainerEntrypoint"] == REPLICA_ENTRYPOINT
    assert "ContainerArguments" not in request["AlgorithmSpecification"]
    document = RunDocument.of(plan)
    assert document.trainer == HOOKED
    assert document.kwargs == {
        "library": "huggingface",
        "program": ["train.py", "--epochs", "3", "--seed", "1"],
        "algorithm": {"sync_every": 100, "momentum": 0.5},
    }
    # It has what a trainer has: processes, rounds and their rules.
    assert plan.spec.processes == "auto"
    assert parse_spec({**HOOKED_SPEC, "on_early_finish": "stop", "watch": {"hang": {"after_seconds": 600}}}).has_trainer


def test_with_source_code_the_program_is_delivered() -> None:
    plan = plan_of(parse_spec({**HOOKED_SPEC, "source_dir": "s3://bucket/source/code.tar.gz"}))
    request: Any = training_job_request(plan, 0, 1)
    assert request["AlgorithmSpecification"]["ContainerEntrypoint"] == list(BOOTSTRAP)


def test_the_settings_are_those_of_the_algorithm() -> None:
    kinds = {field.name: field.type for field in dataclasses.fields(Algorithm)}
    assert {name: kind.__name__ for name, kind in hook._SETTINGS.items()} == kinds


def test_what_cannot_be_hooked_is_refused() -> None:
    assert refused(trainer="training:train", entrypoint=None) == [
        "hook: set together with trainer; leave hook out: add DiLoCoCallback to the Trainer in the trainer's own code"
    ]
    assert "hook: set without entrypoint; entrypoint: [python, script.py" in refused(entrypoint=None)[-1]
    (problem,) = refused(entrypoint=["torchrun", "train.py"])
    assert problem.startswith("entrypoint: found torchrun train.py; with hook [python, script.py, …] or [python, -m,")
    assert problem.endswith("name the script itself: Muster starts the processes of a replica (processes)")
    missing, *others = refused(kwargs={"sync_evry": 5, "momentum": True})
    assert missing.startswith("kwargs.sync_every: not set, and hook needs it; write how many optimizer steps are")
    assert others == [
        "kwargs.sync_evry: not a setting of the algorithm, which kwargs are with hook; did you mean sync_every?",
        "kwargs.momentum: found True; a number; correct it",
    ]
    assert "hook" in refused(hook="keras")[0]
