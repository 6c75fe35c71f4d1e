"""A deployment or a rollback replaces all functions at once, under runs that train and runs that wait in the queue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from muster.contract.run.result import Verdict
from muster.contract.spec.stack_defaults import StackDefaults
from muster.control.admission import AdmitRequest, admit
from muster.control.attempt import Launch
from muster.control.finish import finish_run
from muster.control.planning import make_plan
from tests.memory.harness import RUN, ControlHarness, budget

OF_ATTEMPT = {"TrainingJobName", "Tags", "Environment", "HyperParameters"}


def deployed(before: ControlHarness, cap: int | None = None) -> ControlHarness:
    """The functions of the next deployment: another role, other defaults, another limit, and nothing read yet."""
    after = ControlHarness(cloud=before.cloud, cap=cap)
    place = after.deployment.place.model_copy(update={"role_arn": "arn:aws:iam::123456789012:role/new"})
    after.deployment = replace(
        after.deployment, place=place, defaults=StackDefaults(image="new:2", tags={"team": "new"}), replica_cap=cap
    )
    return after


def common(request: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in request.items() if name not in OF_ATTEMPT}


def test_a_run_that_trains_is_rerun_as_it_was_planned_and_settled_by_the_new_functions() -> None:
    with ControlHarness().installed() as before:
        before.deployment = replace(before.deployment, defaults=StackDefaults(image="old:1"))
        before.plan(replicas=2, image=None)
        for rank in range(2):
            before.arm(rank)
        after = deployed(before)
        before.cloud.training.fail(before.job(), "InternalServerError: again")
        after.deliver()
        assert after.arm(attempt=2) is Launch.CREATED
        first, _, second = before.cloud.calls.of("CreateTrainingJob")
        assert common(dict(first)) == common(dict(second))
        assert first["AlgorithmSpecification"]["TrainingImage"] == "old:1"
        after.cloud.training.complete(after.job(attempt=2))
        after.cloud.training.complete(after.job(1))
        after.deliver()
        finish_run(after.plane, after.plane.runs.require(RUN), budget())
        result = after.result()
        assert result is not None
        assert (result.verdict, result.reruns) == (Verdict.SUCCEEDED, 1)


def queued(harness: ControlHarness) -> None:
    """One run trains, and another one waits for it."""
    for name, replicas in (("first", 3), (RUN, 2)):
        harness.plan(name, replicas=replicas)
        admit(harness.plane, AdmitRequest(run=name, token=harness.cloud.workflow.token(name)))


def joined_again(harness: ControlHarness) -> bool:
    """The wait of the run has timed out: its workflow asks again. Whether it goes on now."""
    token = harness.cloud.workflow.token(RUN)
    admit(harness.plane, AdmitRequest(run=RUN, token=token))
    return harness.output(token) == {}


def test_a_run_that_waits_is_admitted_once_the_limit_is_raised() -> None:
    with ControlHarness(cap=4).installed() as before:
        queued(before)
        assert joined_again(deployed(before, cap=5))


def test_a_run_that_waits_is_admitted_once_the_limit_is_removed() -> None:
    with ControlHarness(cap=4).installed() as before:
        queued(before)
        assert joined_again(deployed(before))


def test_a_run_that_waits_and_is_larger_than_the_lowered_limit_is_admitted_alone_and_keeps_its_plan() -> None:
    with ControlHarness(cap=4).installed() as before:
        queued(before)
        plan = before.plane.runs.require(RUN).plan
        after = deployed(before, cap=1)
        assert not joined_again(after)
        finish_run(after.plane, after.plane.runs.require("first"), budget())
        assert joined_again(after)
        assert make_plan(after.plane.store, after.deployment, before.plan_request(replicas=2)) == plan
