"""Plan: written once, and the same however often the execution asks."""

import hashlib
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.errors import DocumentError, RunNameTakenError, SpecError
from muster.contract.run.attempt import Attempt
from muster.contract.run.plan import Lineage, Plan
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.contract.run.run_document import RunDocument
from muster.contract.spec.stack_defaults import StackDefaults
from muster.contract.training.source_delivery import REFRESH_DAYS
from muster.contract.training.source_delivery import SOURCE as SOURCES
from muster.control import plan as plan_module
from muster.control.documents import RunDocuments
from muster.control.plan import make_plan
from muster.control.replica_package import ReplicaPackage
from muster.control.runtime import clock
from tests.memory import Fault
from tests.memory.harness import PACKAGE, ROLE, RUN, ControlHarness
from tests.support.control_steps import Row, found

SOURCE = "s3://elsewhere/source.tar.gz"


def planned(
    harness: ControlHarness,
    run: str = RUN,
    /,
    *,
    cap: int | None = None,
    defaults: StackDefaults | None = None,
    again: dict[str, Any] | None = None,
    **fields: Any,
) -> Plan:
    """The plan of a spec with these fields; `again`: what is different in the request of a later call."""
    request = harness.plan_request(run, **fields).model_copy(update=again or {})
    deployment = replace(harness.deployment, defaults=defaults or StackDefaults())
    harness.plane.settings = harness.plane.settings.model_copy(update={"max_concurrent_replicas": cap})
    return make_plan(harness.plane, deployment, request)


def refused(harness: ControlHarness, **fields: Any) -> str:
    """Why a spec is refused; nothing is written."""
    before = harness.keys("")
    with pytest.raises(SpecError) as caught:
        planned(harness, **fields)
    assert harness.keys("") == before
    return str(caught.value)


def test_the_plan_and_the_document_of_the_replicas_are_written_once_for_an_execution(harness: ControlHarness) -> None:
    plan = planned(harness, replicas=3)
    assert harness.keys("") == ["control/one/plan.json", "runs/one/document.json"]
    document = found(harness.plane.store.get("runs/one/document.json")).body
    assert RunDocument.from_json(document, "document") == RunDocument.of(plan)
    assert planned(harness, no_longer_a_field=True) == plan, "newer rules refuse the spec"
    with pytest.raises(RunNameTakenError) as caught:
        planned(harness, again={"execution_arn": "arn:other"})
    assert plan.execution_arn in str(caught.value)
    assert RunDocuments(harness.plane.store, RUN).plan() == plan


def test_a_later_execution_of_the_same_name_does_not_take_an_old_run_for_its_own(harness: ControlHarness) -> None:
    planned(harness)
    # Step Functions forgets an execution after 90 days, and the next one of that name has the same ARN.
    with pytest.raises(RunNameTakenError):
        planned(harness, again={"started_at": "2027-06-01T00:00:00Z"})


def test_a_deployment_while_a_run_waits_for_its_turn_changes_nothing_of_its_plan(harness: ControlHarness) -> None:
    first = planned(harness, replicas=3, cap=4, image=None, source_dir=SOURCE, defaults=StackDefaults(image="old:1"))
    assert first.spec.image == "old:1"
    package = harness.keys("packages/")
    harness.deployment = replace(
        harness.deployment,
        place=harness.deployment.place.model_copy(update={"role_arn": f"{ROLE}-2"}),
        package=ReplicaPackage(Path(plan_module.__file__)),
    )
    new = StackDefaults(image="new:2")
    assert planned(harness, replicas=3, cap=2, image=None, source_dir=SOURCE, defaults=new) == first
    assert harness.keys("packages/") == package


# --- source code and the replica package ----------------------------------------------------------


def test_a_run_with_source_pins_the_package_of_this_version_which_outlives_the_run(harness: ControlHarness) -> None:
    store, package = harness.plane.store, harness.deployment.package
    assert planned(harness, "without-source").place.package_uri is None
    assert harness.keys("packages/") == []
    digest = hashlib.sha256(PACKAGE.read_bytes()).hexdigest()
    uri = planned(harness, "first", source_dir=SOURCE).place.package_uri
    assert uri == store.uri(package.key) == f"s3://bucket/packages/{digest}.zip"
    assert found(store.get(package.key)).body == PACKAGE.read_bytes()
    written = found(store.version(package.key)).written_at
    for days, again in ((REFRESH_DAYS - 1, False), (2, True)):
        harness.cloud.clock.advance(days * 86_400)
        planned(harness, f"after{days}", source_dir=SOURCE)
        assert (found(store.version(package.key)).written_at > written) is again, days


def test_source_in_the_stack_s_bucket_is_kept_for_as_long_as_the_run_can_need_it(harness: ControlHarness) -> None:
    store, key = harness.plane.store, f"{SOURCES}{'a' * 64}.tar.gz"
    assert f"source_dir: {store.uri(key)}" in refused(harness, source_dir=store.uri(key))
    store.create(key, b"source")
    harness.cloud.clock.advance((REFRESH_DAYS + 1) * 86_400)
    planned(harness, source_dir=store.uri(key))
    assert found(store.get(key)).body == b"source"
    assert clock.utc_now() - found(store.version(key)).written_at < timedelta(seconds=5)


# --- what is refused, and completed ---------------------------------------------------------------


def test_a_spec_that_cannot_be_run_writes_nothing(row: Row) -> None:
    rows: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        ({"replicas": 0}, ("replicas",)),
        ({"name": "another"}, ("'another'", "'one'")),
        ({"image": None}, ("image", "no default")),
        ({"source_dir": "./src", "image": "i:1"}, ("a local folder",)),
        ({"replicas": 5, "cap": 4}, ("at most 4", "max_concurrent_replicas")),
        ({"role_arn": "train"}, ("role_arn: found 'train'", "`muster launch`")),
        ({"name": "another", "image": None}, ("'another'", "no default")),  # All problems are named at once.
    ]
    for fields, parts in rows:
        with row(fields) as harness:
            words = refused(harness, **fields)
            assert [part for part in parts if part not in words] == [], words


# --- a run that continues another -----------------------------------------------------------------


def ended(harness: ControlHarness, rounds: int | None = None, replicas: int = 2, **fields: Any) -> Plan:
    """A run that has failed in its second attempt."""
    plan = planned(harness, "first", replicas=replicas, **fields)
    attempt = Attempt(attempt=2, job="job", failure_class=FailureClass.INFRASTRUCTURE)
    lost = ReplicaResult(rank=0, outcome=ReplicaOutcome.FAILED, attempts=(attempt,))
    values: dict[str, Any] = {"verdict": Verdict.FAILED, "reason": "", "settled_at": "t", "reruns": 1}
    result = Result(run="first", committed_rounds=rounds, replicas=(lost,), **values)
    for round_ in range(1, (rounds or 0) + 1):
        harness.plane.store.create(plan.layout.commit(round_), b"{}")
    harness.plane.store.create(plan.layout.result, result.to_json())
    return plan


def continued(
    harness: ControlHarness, run: str = "second", parent: str = "first", replicas: int = 2, **fields: Any
) -> Plan:
    return planned(harness, run, replicas=replicas, resume_from=parent, **fields)


def test_a_continuation_shares_the_rendezvous_and_counts_attempts_and_rounds_on(harness: ControlHarness) -> None:
    ended(harness, rounds=5)
    plan = continued(harness)
    assert plan.lineage == Lineage(parent="first", root="first", generation=1, attempts_before=2, rounds_before=5)
    assert RunDocument.of(plan).rounds_before == 5
    assert harness.keys("control/second/") == ["lineage.json", "plan.json"]
    assert harness.keys("control/first/") == ["continued_by.json", "plan.json", "result.json"]
    assert continued(harness) == plan
    with pytest.raises(SpecError, match="already continued by second"):
        continued(harness, "third")


def test_a_run_whose_rounds_were_deleted_is_not_continued(row: Row) -> None:
    for gone in ([1, 2, 3, 4, 5], [5], [1]):
        with row(gone) as harness:
            parent = ended(harness, rounds=5)
            for round_ in gone:
                harness.plane.store.s3.delete_object(Bucket="bucket", Key=parent.layout.commit(round_))
            with pytest.raises(SpecError, match=r"s3://bucket/rendezvous/first/"):
                continued(harness)
            assert "continued_by.json" not in harness.keys("control/first/")


def test_what_cannot_be_continued_is_refused(row: Row) -> None:
    for parent, replicas, words in (
        ("never-planned", 2, "is not a run of this stack"),
        ("second", 2, "is not a run of this stack"),
        ("running", 2, "has not ended"),
        ("first", 3, "has 2 replicas"),
    ):
        with row(f"{parent}, {replicas} replicas") as harness:
            ended(harness)
            planned(harness, "running", replicas=2)
            with pytest.raises(SpecError, match=words):
                continued(harness, "second", parent, replicas)
            assert harness.keys("control/second/") == []
            assert "continued_by.json" not in harness.keys("control/first/")


def test_a_continuation_takes_snapshots_as_often_as_the_run_before(harness: ControlHarness) -> None:
    """Its replicas would refuse another setting, and the run before could not be continued again."""
    ended(harness, rounds=1)
    refusal = "first has rendezvous.snapshot_rounds 10, and this spec 5; write snapshot_rounds: 10, or leave"
    with pytest.raises(SpecError, match=refusal):
        continued(harness, rendezvous={"snapshot_rounds": 5})
    assert "continued_by.json" not in harness.keys("control/first/")
    assert continued(harness, rendezvous={"snapshot_rounds": 10}).lineage is not None


def test_a_continuation_reads_the_snapshots_of_the_run_before_only_if_both_or_neither_is_elastic(row: Row) -> None:
    """Of an elastic run 64 members write a snapshot at most, of another one all do."""
    for seats, before, after, refusal in (
        (65, False, True, "write replicas: 65, or leave resume_from out"),
        (65, True, False, "write replicas: {min: …, start: …, max: 65}, or leave resume_from out"),
        (65, True, True, None),
        (64, False, True, None),
        (64, True, False, None),
    ):
        with row(f"{seats} seats, elastic: {before}, then {after}") as harness:
            elastic: dict[str, Any] = {"elastic": {"min": 2, "start": 4}}
            ended(harness, rounds=1, replicas=seats, **(elastic if before else {}))
            more: dict[str, Any] = elastic if after else {}
            if refusal is None:
                assert continued(harness, replicas=seats, **more).lineage is not None
                continue
            with pytest.raises(SpecError, match=re.escape(refusal)):
                continued(harness, replicas=seats, **more)
            assert harness.keys("control/second/") == []
            assert "continued_by.json" not in harness.keys("control/first/")


def test_of_two_continuations_at_once_the_first_one_stands(harness: ControlHarness) -> None:
    ended(harness)
    harness.cloud.calls.inject(Fault("PutObject", action=lambda: continued(harness, "other")))
    with pytest.raises(SpecError, match="already continued by other"):
        continued(harness, "one")
    assert harness.keys("control/one/") == []


# --- plans that are read --------------------------------------------------------------------------


def test_a_run_without_a_plan_is_named_in_full(harness: ControlHarness) -> None:
    assert harness.plane.runs.find("nothing") is None
    with pytest.raises(DocumentError, match=r"s3://bucket/control/nothing/plan\.json"):
        harness.plane.runs.require("nothing")


def test_a_plan_is_read_once_by_a_warm_function(harness: ControlHarness) -> None:
    for number in range(20):
        planned(harness, f"run{number}")
    harness.cloud.calls.reset()
    for number in (*range(20), *range(20)):
        harness.plane.runs.require(f"run{number}")
    assert harness.cloud.calls.counts() == {"GetObject": 20}
