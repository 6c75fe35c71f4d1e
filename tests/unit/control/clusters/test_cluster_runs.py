"""A run on a cluster, from its launch to its end, as the functions see it."""

import json
from collections import Counter
from typing import Any

import pytest

from muster.contract.run.notices import NoticeKind
from muster.contract.run.result import Verdict
from muster.control.active_run import ActiveRun
from muster.control.attempt_request import Launch
from muster.control.runtime import clock
from muster.control.settle import finish_run
from muster.control.stop import StopRequest, raise_fence_and_stop, stop_run, verify_stopped
from muster.control.sweep import SweepRequest, sweep
from muster.options.hyperpod.contract.job_document import cluster_job
from muster.options.hyperpod.control.api import TRIES
from muster.options.hyperpod.control.cluster_errors import ClusterUnauthorizedError
from tests.memory.calls import AwsError, Fault
from tests.memory.harness import CLUSTER_SPEC, RUN, ControlHarness, budget, node_event, sns_event
from tests.simulation.lives import manifest_archive
from tests.support.control_steps import CANCELLED, QUORUM_LOST, Row, found

JOB = "muster-one-r0-a1"
PATH = "/apis/sagemaker.amazonaws.com/v1/namespaces/team-a/hyperpodpytorchjobs"
KUBERNETES = {"CreateJob", "GetJob", "ListJobs", "DeleteJob", "ListPods"}


def plan(harness: ControlHarness, **fields: Any) -> ActiveRun:
    return harness.plan(RUN, **{**CLUSTER_SPEC, **fields})


def launched(harness: ControlHarness, **fields: Any) -> ActiveRun:
    run = plan(harness, **fields)
    for rank in range(run.plan.spec.replicas):
        assert harness.arm(rank) is Launch.CREATED
        harness.cluster.run(harness.job(rank))
    return run


def calls(harness: ControlHarness) -> Counter[str]:
    return Counter({name: count for name, count in harness.cloud.calls.counts().items() if name in KUBERNETES})


def after(seconds: float, harness: ControlHarness, action: Any) -> None:
    harness.cloud.clock.after(seconds, action)


def test_the_end_of_a_replica_reaches_its_workflow_in_at_most_six_calls(harness: ControlHarness) -> None:
    plan(harness)
    harness.cloud.calls.reset()
    harness.arm()
    harness.cluster.run(JOB)
    assert harness.record().current.secondary == "Pending"
    assert harness.heed(harness.notice(NoticeKind.START)) == ["noted: InProgress/Training"]
    # The operator sees the end a second after the pod has reported it.
    after(1.0, harness, lambda: harness.cluster.complete(JOB))
    assert harness.heed(harness.notice(NoticeKind.END)) == ["decided"]
    assert found(harness.answer())["next"] == "done"
    assert clock.monotonic() < 2.0
    assert [step.secondary for step in harness.record().current.history] == ["Pending", "Training", "Completed"]
    assert sum(calls(harness).values()) <= 6, calls(harness)


def test_a_run_ends_as_on_sagemaker(harness: ControlHarness) -> None:
    run = launched(harness)
    harness.cluster.complete(JOB)
    harness.heed(harness.notice(NoticeKind.END))
    archive = {"Bucket": "bucket", "Key": f"output/one/{JOB}/output/output.tar.gz", "Body": manifest_archive()}
    harness.cloud.s3.operations["PutObject"].effect(archive)
    finished = finish_run(harness.plane, run, budget())
    [replica] = finished.result.replicas
    assert (finished.result.verdict, finished.left) == (Verdict.SUCCEEDED, ())
    assert replica.round == 1
    assert replica.artifacts == f"s3://bucket/output/one/{JOB}/output/model.tar.gz"
    assert replica.attempts[0].billable_seconds is None
    assert replica.attempts[0].instance_type == "ml.m5.large"
    assert harness.cloud.kubernetes.associations == {}
    assert [key for key in harness.cluster.objects if key[0] == "serviceaccounts"] == []


def test_a_preempted_job_resumes_as_another_incarnation_of_its_attempt(harness: ControlHarness) -> None:
    launched(harness, hyperpod={"cluster": "hyper", "queue": "team-a-queue"})
    harness.heed(harness.notice(NoticeKind.START))
    harness.cluster.preempt(JOB)
    # Its pod was ended with SIGTERM, and says so; the job has not ended.
    assert harness.heed(harness.notice(NoticeKind.END, exit_code=143)) == ["noted: InProgress/WaitingForQuota"]
    assert harness.answer() is None
    harness.cluster.admit(JOB)
    harness.cluster.run(JOB)
    harness.heed(harness.notice(NoticeKind.START))
    names = [step.secondary for step in harness.record().current.history]
    assert names == ["WaitingForQuota", "Training", "WaitingForQuota", "Training"]
    assert harness.record().current.attempt == 1


def test_the_operators_restart_is_an_incarnation_and_ends_the_look(harness: ControlHarness) -> None:
    launched(harness)
    harness.heed(harness.notice(NoticeKind.START))
    after(3.0, harness, lambda: harness.cluster.restart(JOB))
    begin = clock.monotonic()
    assert harness.heed(harness.notice(NoticeKind.END, exit_code=1)) == ["noted: InProgress/Restarting"]
    assert clock.monotonic() - begin < 7.0
    harness.cluster.run(JOB)
    harness.heed(harness.notice(NoticeKind.START))
    current = harness.record().current
    assert [step.secondary for step in current.history][-3:] == ["Training", "Restarting", "Training"]
    assert current.cluster is not None
    assert current.cluster.restarts == 1
    assert harness.answer() is None


def test_what_the_operator_has_given_up_is_rerun(harness: ControlHarness) -> None:
    launched(harness)
    harness.cluster.fail(JOB, "NodeFault", "Found unhealthy node (after 3 restarts)")
    assert harness.heed(harness.notice(NoticeKind.END, exit_code=1, reason="mine")) == ["decided"]
    answer = found(harness.answer())
    assert (answer["next"], answer["attempt"]) == ("rerun", 2)
    assert harness.record().current.secondary == "NodeFault"
    assert harness.arm(attempt=2) is Launch.CREATED
    assert harness.cluster.jobs() == [JOB, "muster-one-r0-a2"]


def test_the_words_of_an_end_notice_say_why_the_program_failed(harness: ControlHarness) -> None:
    launched(harness)
    harness.cluster.fail(JOB, "WorkerCrash", "exited with code -256")
    harness.heed(harness.notice(NoticeKind.END, exit_code=71, reason="[out-of-memory] CUDA out of memory"))
    current = harness.record().current
    assert current.reason == "AlgorithmError: [out-of-memory] CUDA out of memory, exit code: 71"
    assert current.failure_class == "user-code"


def test_a_lost_notice_is_made_good_by_the_re_arm(harness: ControlHarness) -> None:
    launched(harness)
    harness.cloud.clock.advance(900)
    assert harness.arm() is Launch.ADOPTED
    assert harness.record().current.secondary == "Training"
    assert harness.answer() is None
    harness.notice(NoticeKind.END)
    harness.cluster.complete(JOB)
    harness.cloud.clock.advance(900)
    assert harness.arm() is Launch.CONCLUDED
    assert found(harness.answer())["next"] == "done"


def test_a_forged_notice_changes_nothing(harness: ControlHarness) -> None:
    launched(harness)
    harness.heed(harness.notice(NoticeKind.START))
    before = harness.record()
    reasons = harness.heed(harness.notice(NoticeKind.END, exit_code=1, reason="[bad-input] forged"))
    assert reasons == ["noted: InProgress/Training"]
    assert harness.record().attempts == before.attempts
    assert harness.answer() is None


def seconds_of(harness: ControlHarness, kind: NoticeKind) -> float:
    """How long a notice about a job that goes on keeps the function busy."""
    event, began = harness.notice(kind, exit_code=1), clock.monotonic()
    assert harness.heed(event) == ["noted: InProgress/Training"], kind
    return clock.monotonic() - began


def test_of_the_notices_about_a_job_one_waits_at_a_time(harness: ControlHarness) -> None:
    launched(harness)
    others: list[float] = []
    for second in (1.0, 12.0, 27.0):
        after(second, harness, lambda: others.append(seconds_of(harness, NoticeKind.END)))
    seconds_of(harness, NoticeKind.END)
    # When the last one comes the first does not wait for long enough any more.
    assert others == [0.0, 0.0, 30.0]
    assert harness.record().wait is None
    assert seconds_of(harness, NoticeKind.END) == 30.0


def test_a_notice_that_can_explain_a_failure_does_not_leave_it_to_one_that_cannot(harness: ControlHarness) -> None:
    launched(harness)
    end = harness.notice(NoticeKind.END, exit_code=71, reason="[out-of-memory] CUDA out of memory")
    after(6.0, harness, lambda: harness.cluster.fail(JOB, "WorkerCrash", "exited with code -256"))
    after(4.0, harness, lambda: harness.heed(end))
    harness.heed(harness.notice(NoticeKind.MISSING))
    assert "CUDA out of memory" in harness.record().current.reason


def test_a_notice_about_a_job_whose_pods_all_run_waits_for_seconds(harness: ControlHarness) -> None:
    launched(harness)
    harness.cluster.add_pod(JOB, {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]})
    for kind in (NoticeKind.END, NoticeKind.MISSING):
        assert 5.0 <= seconds_of(harness, kind) < 7.0, kind
    # One that has ended is waited for.
    harness.cluster.add_pod(JOB, {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {}}}]})
    assert seconds_of(harness, NoticeKind.END) == 30.0


def test_a_notice_about_nothing_is_dropped_without_a_look(harness: ControlHarness) -> None:
    launched(harness)
    harness.plan("jobs")
    harness.arm(run="jobs")
    harness.cloud.calls.reset()
    for notice in ("other/end-r0-a1", "one/end-r7-a1", "one/end-r0-a9", "one/missing-r7-1", "jobs/end-r0-a1"):
        [reaction] = harness.heed(sns_event("bucket", f"notices/{notice}-x.json"))
        assert reaction.startswith("dropped"), notice
    assert not calls(harness)


def test_an_oversized_or_malformed_notice_decides_no_less(harness: ControlHarness) -> None:
    launched(harness, replicas=2)
    put = harness.cloud.s3.operations["PutObject"].effect
    for rank, body in enumerate((b"x" * 100_000, b"{")):
        harness.cluster.fail(harness.job(rank), "WorkerCrash", "exited with code -768")
        key = f"notices/one/end-r{rank}-a1-pod.json"
        put({"Bucket": "bucket", "Key": key, "Body": body})
        assert harness.heed(sns_event("bucket", key)) == ["decided"]
        assert harness.record(rank).current.reason == "AlgorithmError: WorkerCrash: exited with code -768, exit code: 3"


def test_a_repeated_notice_completes_the_token_again_and_decides_once(harness: ControlHarness) -> None:
    launched(harness)
    harness.cluster.complete(JOB)
    event = harness.notice(NoticeKind.END)
    assert harness.heed(event) == ["decided"]
    assert harness.heed(event) == ["announced again: the decision was already recorded"]


def test_a_lost_node_is_seen_by_hyperpods_event_without_a_notice(harness: ControlHarness) -> None:
    launched(harness, replicas=2)
    for rank in range(2):
        harness.heed(harness.notice(NoticeKind.START, rank))
    after(8.0, harness, lambda: harness.cluster.fail(harness.job(1), "NodeFault", "lost"))
    begin = clock.monotonic()
    assert harness.heed(node_event()) == ["decided"]
    assert clock.monotonic() - begin < 30
    assert found(harness.answer(1))["next"] == "rerun"
    assert harness.answer(0) is None


def test_other_news_do_not_end_the_look_that_an_event_has_begun(harness: ControlHarness) -> None:
    launched(harness, replicas=3)
    # What the start notice would have brought is seen first; the third one ends by itself meanwhile.
    after(2.0, harness, lambda: harness.cluster.complete(harness.job(2)))
    after(9.0, harness, lambda: harness.cluster.fail(harness.job(1), "NodeFault", "lost"))
    noted = ["noted: InProgress/Training"] * 3
    assert harness.heed(node_event()) == [*noted, "decided", "decided"]
    assert found(harness.answer(1))["next"] == "rerun"


def test_an_event_about_a_healthy_cluster_changes_nothing_and_ends_within_a_minute(harness: ControlHarness) -> None:
    launched(harness)
    harness.heed(harness.notice(NoticeKind.START))
    before, begin = harness.record(), clock.monotonic()
    assert harness.heed(node_event()) == []
    assert clock.monotonic() - begin <= 66
    assert harness.record() == before
    assert harness.heed(node_event("another")) == []


def test_a_missing_member_is_looked_at(harness: ControlHarness) -> None:
    launched(harness)
    after(20.0, harness, lambda: harness.cluster.fail(JOB, "NodeFault", "lost"))
    assert harness.heed(harness.notice(NoticeKind.MISSING)) == ["decided"]


def test_a_job_that_a_person_deletes_is_not_created_again(harness: ControlHarness) -> None:
    launched(harness)
    harness.cluster.remove(JOB)
    harness.cloud.clock.advance(900)
    assert harness.arm() is Launch.CONCLUDED
    current = harness.record().current
    assert (current.status, current.secondary, current.failure_class) == ("Stopped", "Deleted", "stopped-by-user")
    assert harness.cluster.jobs() == []


def test_a_cluster_whose_operator_was_removed_has_no_jobs_any_more(harness: ControlHarness) -> None:
    """With the kind of a job Kubernetes removes all of them."""
    run = launched(harness)
    harness.cluster.remove(JOB)
    harness.cluster.has_operator = False
    assert harness.arm() is Launch.CONCLUDED
    assert harness.record().current.secondary == "Deleted"
    assert finish_run(harness.plane, run, budget()).left == ()


def create(harness: ControlHarness, document: dict[str, Any]) -> None:
    harness.cluster.answer("POST", PATH, json.dumps(document).encode())


def test_a_job_that_another_takes_the_name_of_is_not_adopted(harness: ControlHarness) -> None:
    run = launched(harness)
    document = harness.cluster.job(JOB)
    harness.cluster.remove(JOB)
    create(harness, {**document, "metadata": {"name": JOB, "labels": document["metadata"]["labels"]}})
    assert harness.arm() is Launch.CONCLUDED
    assert harness.record().current.secondary == "Deleted"
    # Nor is it stopped with the run.
    raise_fence_and_stop(harness.plane, run, QUORUM_LOST, budget())
    verify_stopped(run, budget())
    assert "deletionTimestamp" not in harness.cluster.job(JOB)["metadata"]


def test_a_foreign_job_with_the_attempts_name_is_refused(harness: ControlHarness) -> None:
    run = plan(harness)
    create(harness, {**cluster_job(run.plan, 0, 1), "metadata": {"name": JOB}})
    assert harness.arm() is Launch.CONCLUDED
    current = harness.record().current
    assert current.failure_class == "invalid-request"
    assert f"{JOB} exists" in current.reason


def test_the_answer_to_a_creation_is_lost_and_the_job_is_adopted(harness: ControlHarness) -> None:
    plan(harness)
    harness.cloud.calls.inject(Fault("CreateJob", ConnectionError("reset"), after_effect=True))
    assert harness.arm() is Launch.ADOPTED
    assert harness.cluster.jobs() == [JOB]


def test_a_cluster_that_does_not_know_its_callers_for_a_while_loses_no_replica(harness: ControlHarness) -> None:
    plan(harness)
    unknown = AwsError("Unauthorized", "Unauthorized", 401)
    for operation in ("CreateJob", "GetJob"):
        harness.cloud.calls.inject(Fault(operation, unknown, count=TRIES))
        with pytest.raises(ClusterUnauthorizedError):
            harness.arm()
        harness.cloud.calls.inject(Fault(operation, unknown, count=TRIES - 1))
        assert harness.arm() in {Launch.CREATED, Launch.ADOPTED}, operation
    assert harness.cluster.jobs() == [JOB]
    assert harness.record().current.failure_class is None


def test_a_refusal_has_its_class_and_no_private_value(row: Row) -> None:
    for status, reason, message, failure_class in (
        (403, "Forbidden", "exceeded quota: compute, requested: cpu=4", "quota"),
        (403, "Forbidden", "cannot create resource", "invalid-request"),
        (422, "Invalid", 'spec.env[0].value: Invalid value: "hunter22": no', "invalid-request"),
        (400, "BadRequest", 'admission webhook "x" denied the request: hunter22', "invalid-request"),
        (404, "NotFound", "the server could not find the requested resource", "invalid-request"),
    ):
        with row(message, clusters=True) as harness:
            plan(harness, environment={"SECRET": "hunter22"})
            harness.cloud.calls.inject(Fault("CreateJob", AwsError(reason, message, status)))
            assert harness.arm() is Launch.CONCLUDED
            current = harness.record().current
            assert (current.secondary, current.failure_class) == ("NotCreated", failure_class)
            assert current.reason.startswith(f"{status} {reason}: ")
            assert "hunter22" not in current.reason
            assert "namespace team-a of the cluster hyper" in current.reason


def test_a_refusal_has_no_short_value_and_no_part_of_a_long_one(harness: ControlHarness) -> None:
    plan(harness, environment={"PIN": "48151", "KEY": "k" * 500})
    message = f"no 48151{', no' * 190}{'k' * 500}"
    harness.cloud.calls.inject(Fault("CreateJob", AwsError("BadRequest", message, 400)))
    assert harness.arm() is Launch.CONCLUDED
    reason = harness.record().current.reason
    assert ("48151" in reason, "kkk" in reason) == (False, False)


def test_a_cluster_that_is_gone_ends_the_attempt_and_is_named(harness: ControlHarness) -> None:
    run = launched(harness)
    harness.cloud.kubernetes.delete("eks-one")
    assert harness.arm() is Launch.CONCLUDED
    current = harness.record().current
    assert (current.status, current.secondary, current.failure_class) == ("Failed", "ClusterGone", "infrastructure")
    assert "EKS cluster eks-one" in current.reason
    assert harness.arm(attempt=2) is Launch.CONCLUDED
    assert harness.record().current.failure_class == "invalid-request"
    assert finish_run(harness.plane, run, budget()).left == ()


def test_stop_deletes_the_jobs_and_the_children_learn_of_it(harness: ControlHarness) -> None:
    run = launched(harness, replicas=2)
    assert stop_run(harness.plane, StopRequest(run=RUN, reason="quorum"), budget())
    assert harness.cluster.jobs() == []
    for rank in range(2):
        assert found(harness.answer(rank))["next"] == "fail"
        assert harness.record(rank).current.failure_class == "stopped-by-muster"
    verify_stopped(run, budget())


def test_a_job_that_ended_by_itself_is_not_deleted_by_a_stop(harness: ControlHarness) -> None:
    run = launched(harness)
    harness.cluster.complete(JOB)
    raise_fence_and_stop(harness.plane, run, CANCELLED, budget())
    harness.cloud.clock.advance(5)
    assert harness.cluster.jobs("Completed") == [JOB]
    harness.heed(harness.notice(NoticeKind.END))
    assert harness.record().current.status == "Completed"


def test_a_job_that_ends_while_it_is_stopped_keeps_its_end(harness: ControlHarness) -> None:
    run = launched(harness)
    ends = Fault("DeleteJob", action=lambda: harness.cluster.complete(JOB))
    harness.cloud.calls.inject(ends)
    run.replica(0).jobs.stop(JOB)
    harness.cloud.clock.advance(5)
    assert harness.cluster.jobs("Completed") == [JOB]


def test_a_job_whose_launch_was_recorded_as_refused_is_stopped_when_it_starts(harness: ControlHarness) -> None:
    run = plan(harness)
    harness.cloud.calls.inject(Fault("CreateJob", AwsError("Forbidden", "exceeded quota", 403)))
    harness.arm()
    create(harness, cluster_job(run.plan, 0, 1))
    harness.cluster.run(JOB)
    [reaction] = harness.heed(harness.notice(NoticeKind.START))
    assert reaction.endswith("stopped: its launch was recorded as refused")
    harness.cloud.clock.advance(5)
    assert harness.cluster.jobs() == []


def test_the_sweep_stops_orphans_on_clusters_and_takes_their_rights_away(harness: ControlHarness) -> None:
    launched(harness)
    harness.cloud.workflow.succeed(RUN)
    harness.cloud.clock.advance(7 * 86_400 + 1)
    swept = sweep(harness.plane, harness.executions, SweepRequest(), budget(800))
    assert swept.stopped == (JOB,)
    harness.cloud.clock.advance(60)
    assert harness.cluster.jobs() == []
    assert sweep(harness.plane, harness.executions, SweepRequest(), budget(800)).errors == ()
    assert harness.cloud.kubernetes.associations == {}


def test_a_cluster_that_does_not_answer_keeps_no_training_job_from_being_swept(harness: ControlHarness) -> None:
    harness.plan("two")
    harness.arm(run="two")
    harness.cloud.kubernetes.gone.add("https://eks-one.eks.example.com")
    harness.cloud.workflow.succeed("two", {})
    harness.cloud.clock.advance(7 * 86_400 + 1)
    swept = sweep(harness.plane, harness.executions, SweepRequest(), budget(800))
    assert swept.stopped == ("muster-two-r0-a1",)
    assert any("eks-one" in error for error in swept.errors)


def test_a_mixed_run_has_jobs_of_both_kinds(harness: ControlHarness) -> None:
    run = harness.plan(RUN, replicas=2, overrides={"1": CLUSTER_SPEC})
    assert harness.arm(0) is Launch.CREATED
    assert harness.arm(1) is Launch.CREATED
    assert harness.cloud.training.names() == [JOB]
    assert harness.cluster.jobs() == ["muster-one-r1-a1"]
    raise_fence_and_stop(harness.plane, run, CANCELLED, budget())
    verify_stopped(run, budget())
    assert harness.cloud.training.names("Stopped") == [JOB]
    assert harness.cluster.jobs() == []


def test_an_image_that_cannot_be_pulled_is_no_lack_of_capacity(harness: ControlHarness) -> None:
    plan(harness)
    harness.arm()
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    harness.cluster.add_pod(JOB, {"phase": "Pending", "containerStatuses": [waiting]})
    harness.arm()
    assert harness.record().current.history[-1].message == "ImagePullBackOff: no such image"
    # The operator gives up after the startup deadline, and deletes the pods.
    del harness.cluster.objects["pods", "team-a", f"{JOB}-pod-0"]
    harness.cluster.fail(JOB, "StartupDeadlineExceeded", "no pod runs")
    harness.arm()
    current = harness.record().current
    assert (current.secondary, current.failure_class) == ("ImageError", "invalid-request")
