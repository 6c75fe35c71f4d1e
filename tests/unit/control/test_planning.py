"""Plan: written once, and the same however often the execution asks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.errors import DocumentError, RunNameTakenError, SpecError
from muster.contract.run.attempt import Attempt
from muster.contract.run.continuation import Continuation
from muster.contract.run.lineage import Lineage
from muster.contract.run.plan import Plan
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.contract.run.run_document import RunDocument
from muster.contract.run.source_delivery import REFRESH_DAYS
from muster.contract.run.source_delivery import SOURCE as SOURCES
from muster.contract.spec.stack_defaults import StackDefaults
from muster.control import planning
from muster.control.continuation_registry import register_continuation
from muster.control.documents import RunDocuments
from muster.control.planning import make_plan
from muster.control.replica_package import ReplicaPackage
from muster.control.runtime import clock
from tests.memory import Fault
from tests.memory.harness import PACKAGE, ROLE, RUN, ControlHarness

NONE = StackDefaults()


class FunctionEndedError(BaseException):
    """The function's time is over: no code of it runs any more."""


def planned(
    harness: ControlHarness,
    run: str = RUN,
    /,
    *,
    cap: int | None = None,
    defaults: StackDefaults | None = None,
    **fields: Any,
) -> Plan:
    request = harness.plan_request(run, **fields)
    deployment = replace(harness.deployment, defaults=defaults or StackDefaults(), replica_cap=cap)
    return make_plan(harness.plane.store, deployment, request)


def refused(harness: ControlHarness, **fields: Any) -> str:
    with pytest.raises(SpecError) as caught:
        planned(harness, **fields)
    assert harness.keys("") == []
    return str(caught.value)


def test_the_plan_and_the_document_of_the_replicas_are_written(harness: ControlHarness) -> None:
    plan = planned(harness, replicas=3)
    assert harness.keys("") == ["control/one/plan.json", "runs/one/document.json"]
    assert RunDocuments(harness.plane.store, RUN).plan() == plan
    found = harness.plane.store.get("runs/one/document.json")
    assert found is not None
    assert RunDocument.from_json(found.body, "document") == RunDocument.of(plan)


def test_the_same_execution_gets_the_same_plan(harness: ControlHarness) -> None:
    first = planned(harness)
    harness.cloud.clock.advance(60)
    assert planned(harness) == first


def test_a_call_that_was_cut_off_is_completed_by_the_next(harness: ControlHarness) -> None:
    harness.cloud.calls.inject(Fault("PutObject", FunctionEndedError(), skip=1))
    with pytest.raises(FunctionEndedError):
        planned(harness)
    planned(harness)
    assert harness.keys("") == ["control/one/plan.json", "runs/one/document.json"]


def test_a_run_that_another_execution_owns_is_not_touched(harness: ControlHarness) -> None:
    first = planned(harness)
    request = harness.plan_request().model_copy(update={"execution_arn": "arn:other"})
    with pytest.raises(RunNameTakenError) as caught:
        make_plan(harness.plane.store, harness.deployment, request)
    assert first.execution_arn in str(caught.value)
    assert RunDocuments(harness.plane.store, RUN).plan() == first


def test_a_later_execution_of_the_same_name_does_not_take_an_old_run_for_its_own(harness: ControlHarness) -> None:
    planned(harness)
    # Step Functions forgets an execution after 90 days, and the next one of that name has the same ARN.
    request = harness.plan_request().model_copy(update={"started_at": "2027-06-01T00:00:00Z"})
    with pytest.raises(RunNameTakenError):
        make_plan(harness.plane.store, harness.deployment, request)


def test_a_deployment_while_a_run_waits_for_its_turn_changes_nothing_of_its_plan(harness: ControlHarness) -> None:
    first = planned(harness, replicas=3, cap=4, image=None, source_dir=SOURCE, defaults=StackDefaults(image="old:1"))
    package = harness.keys("packages/")
    deployed = replace(
        harness.deployment,
        place=harness.deployment.place.model_copy(update={"role_arn": f"{ROLE}-2"}),
        defaults=StackDefaults(image="new:2"),
        package=ReplicaPackage(Path(planning.__file__)),
        replica_cap=2,
    )
    request = harness.plan_request(replicas=3, image=None, source_dir=SOURCE)
    assert make_plan(harness.plane.store, deployed, request) == first
    assert harness.keys("packages/") == package


def test_a_spec_that_newer_rules_refuse_is_still_planned_again(harness: ControlHarness) -> None:
    first = planned(harness)
    request = harness.plan_request(no_longer_a_field=True)
    assert make_plan(harness.plane.store, harness.deployment, request) == first


def test_of_two_first_calls_at_once_both_get_the_plan_that_was_written_first(harness: ControlHarness) -> None:
    other = StackDefaults(tags={"team": "a"})
    written: list[Plan] = []
    harness.cloud.calls.inject(Fault("PutObject", action=lambda: written.append(planned(harness, defaults=other))))
    assert [planned(harness)] == written


# --- the replica package -------------------------------------------------------------------------

SOURCE = "s3://elsewhere/source.tar.gz"


def test_a_run_with_source_pins_the_package_of_this_version_by_its_digest(harness: ControlHarness) -> None:
    plan = planned(harness, source_dir=SOURCE)
    digest = hashlib.sha256(PACKAGE.read_bytes()).hexdigest()
    assert plan.place.package_uri == f"s3://bucket/packages/{digest}.zip"
    stored = harness.plane.store.get(f"packages/{digest}.zip")
    assert stored is not None
    assert stored.body == PACKAGE.read_bytes()


def test_a_run_without_source_needs_no_package(harness: ControlHarness) -> None:
    assert planned(harness).place.package_uri is None
    assert harness.keys("packages/") == []


def test_a_package_is_stored_again_before_a_run_that_uses_it_could_outlive_it(harness: ControlHarness) -> None:
    store, package = harness.plane.store, harness.deployment.package
    planned(harness, "first", source_dir=SOURCE)
    written = store.version(package.key)
    assert written is not None
    for days, again in ((REFRESH_DAYS - 1, False), (2, True)):
        harness.cloud.clock.advance(days * 86_400)
        planned(harness, f"after{days}", source_dir=SOURCE)
        found = store.version(package.key)
        assert found is not None
        assert (found.written_at > written.written_at) == again


def test_two_runs_that_store_the_package_at_once_both_get_it(harness: ControlHarness) -> None:
    rival = Fault(
        "PutObject",
        when=lambda call: call.parameters["Key"].startswith("packages/"),
        action=lambda: planned(harness, "rival", source_dir=SOURCE),
    )
    harness.cloud.calls.inject(rival)
    plans = [planned(harness, "first", source_dir=SOURCE), harness.plane.runs.require("rival").plan]
    assert len({plan.place.package_uri for plan in plans}) == 1


def test_source_in_the_stack_s_bucket_is_kept_for_as_long_as_the_run_can_need_it(harness: ControlHarness) -> None:
    store, key = harness.plane.store, f"{SOURCES}abc.tar.gz"
    assert "source_dir: s3://bucket/source/abc.tar.gz does not exist" in refused(harness, source_dir=store.uri(key))
    store.create(key, b"source")
    harness.cloud.clock.advance((REFRESH_DAYS + 1) * 86_400)
    planned(harness, source_dir=store.uri(key))
    found, version = store.get(key), store.version(key)
    assert found is not None
    assert version is not None
    assert (found.body, clock.utc_now() - version.written_at < timedelta(seconds=5)) == (b"source", True)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"replicas": 0}, "replicas"),
        ({"name": "another"}, "'another' in an execution named 'one'"),
        ({"image": None}, "the spec sets none and the stack has no default"),
        ({"source_dir": "./src", "image": "i:1"}, "a local folder"),
        ({"replicas": 5, "cap": 4}, "at most 4, the stack's max_concurrent_replicas"),
    ],
)
def test_a_spec_that_cannot_be_run_writes_nothing(harness: ControlHarness, fields: dict[str, Any], words: str) -> None:
    assert words in refused(harness, **fields)


def test_a_role_that_is_still_a_name_is_refused(harness: ControlHarness) -> None:
    words = "role_arn: found 'train', a name; start the run with `muster launch`, which looks its ARN up"
    assert words in refused(harness, role_arn="train")


def test_all_problems_are_named_at_once(harness: ControlHarness) -> None:
    words = refused(harness, name="another", image=None)
    assert "in an execution named" in words
    assert "the spec sets none" in words


def test_a_stack_completes_what_a_spec_leaves_out(harness: ControlHarness) -> None:
    defaults = StackDefaults(image="stack:1", tags={"team": "a"})
    plan = planned(harness, defaults=defaults, image=None, cap=4)
    assert (plan.spec.image, plan.spec.tags) == ("stack:1", {"team": "a"})


def test_an_execution_with_a_long_name_gets_a_run_of_its_own(harness: ControlHarness) -> None:
    name = "a_name-that-no-training-job-could-hold-" + "x" * 40
    plan = planned(harness, name)
    assert plan.run != name
    assert harness.keys("runs/") == [f"{plan.run}/document.json"]


# --- a run that continues another -----------------------------------------------------------------


def ended(harness: ControlHarness, replicas: int = 2, run: str = "first", rounds: int | None = None) -> Plan:
    """A run that has failed in its second attempt."""
    plan = planned(harness, run, replicas=replicas)
    attempt = Attempt(attempt=2, job="job", failure_class=FailureClass.INFRASTRUCTURE)
    lost = ReplicaResult(rank=0, outcome=ReplicaOutcome.FAILED, attempts=(attempt,))
    result = Result(run=run, verdict=Verdict.FAILED, reason="", settled_at="t", replicas=(lost,), reruns=1)
    result = result.model_copy(update={"committed_rounds": rounds})
    for round_ in range(1, (rounds or 0) + 1):
        harness.plane.store.create(plan.layout.commit(round_), b"{}")
    harness.plane.store.create(plan.layout.result, result.to_json())
    return plan


def test_a_continuation_shares_the_rendezvous_and_counts_attempts_on(harness: ControlHarness) -> None:
    ended(harness)
    plan = planned(harness, "second", replicas=2, resume_from="first")
    assert plan.lineage == Lineage(parent="first", root="first", generation=1, attempts_before=2)
    assert harness.keys("control/second/") == ["lineage.json", "plan.json"]
    assert harness.keys("control/first/") == ["continued_by.json", "plan.json", "result.json"]
    assert planned(harness, "second", replicas=2, resume_from="first") == plan


def test_a_continuation_says_to_its_replicas_which_rounds_it_continues(harness: ControlHarness) -> None:
    ended(harness, rounds=5)
    plan = planned(harness, "second", replicas=2, resume_from="first")
    assert plan.lineage is not None
    assert plan.lineage.rounds_before == RunDocument.of(plan).rounds_before == 5


@pytest.mark.parametrize("gone", [range(1, 6), [5], [1]])
def test_a_run_whose_rounds_were_deleted_is_not_continued(harness: ControlHarness, gone: Iterable[int]) -> None:
    parent = ended(harness, rounds=5)
    for round_ in gone:
        harness.plane.store.s3.delete_object(Bucket="bucket", Key=parent.layout.commit(round_))
    with pytest.raises(SpecError, match=r"rounds of first were deleted from s3://bucket/rendezvous/first/; leave"):
        planned(harness, "second", replicas=2, resume_from="first")
    assert "continued_by.json" not in harness.keys("control/first/")


def test_a_run_has_one_continuation(harness: ControlHarness) -> None:
    ended(harness)
    planned(harness, "second", replicas=2, resume_from="first")
    with pytest.raises(SpecError, match="already continued by second"):
        planned(harness, "third", replicas=2, resume_from="first")


@pytest.mark.parametrize(
    ("parent", "replicas", "words"),
    [
        ("never-planned", 2, "is not a run of this stack"),
        ("second", 2, "is not a run of this stack"),
        ("running", 2, "has not ended"),
        ("first", 3, "has 2 replicas"),
    ],
)
def test_what_cannot_be_continued_is_refused(harness: ControlHarness, parent: str, replicas: int, words: str) -> None:
    ended(harness)
    planned(harness, "running", replicas=2)
    with pytest.raises(SpecError, match=words):
        planned(harness, "second", replicas=replicas, resume_from=parent)
    assert harness.keys("control/second/") == []
    assert "continued_by.json" not in harness.keys("control/first/")


def test_of_two_continuations_at_once_the_first_one_stands(harness: ControlHarness) -> None:
    plan = ended(harness)
    spec = plan.spec.model_copy(update={"resume_from": "first"})
    one, other = (Continuation(run=name, execution_arn=f"arn:{name}") for name in ("one", "other"))
    harness.cloud.calls.inject(
        Fault("PutObject", action=lambda: register_continuation(harness.plane.store, spec, other))
    )
    with pytest.raises(SpecError, match="already continued by other"):
        register_continuation(harness.plane.store, spec, one)


def test_a_run_without_a_plan_is_named_in_full(harness: ControlHarness) -> None:
    assert harness.plane.runs.find("nothing") is None
    with pytest.raises(DocumentError, match=r"s3://bucket/control/nothing/plan\.json"):
        harness.plane.runs.require("nothing")


def test_a_plan_is_read_once_by_a_warm_function(harness: ControlHarness) -> None:
    for number in range(40):
        planned(harness, f"run{number}")
    harness.cloud.calls.reset()
    for _ in range(3):
        harness.plane.runs.require("run1")
        harness.plane.runs.find("run2")
    assert harness.cloud.calls.counts() == {"GetObject": 2}
    for number in range(40):
        harness.plane.runs.require(f"run{number}")
    assert harness.cloud.calls.counts()["GetObject"] <= 42
