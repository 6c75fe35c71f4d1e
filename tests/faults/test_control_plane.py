"""Named faults, injected into the deployed stack and counted. Nothing is lost, nothing is launched twice."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.record import Next
from muster.contract.run.result import ReplicaOutcome, Verdict
from muster.control.aws.clients import TRIES
from muster.local.faults import CallError, CapacityError, Crash, EventFault, LostInstance, QuotaError, SpotInterruption
from tests.support.deployed import Run
from tests.support.jobs.endings import ENDINGS
from tests.support.waiting import wait_until


def classes(run: Run, rank: int = 0) -> list[str | None]:
    return [attempt.failure_class for attempt in run.result().replicas[rank].attempts]


def state_change(run: Run, rank: int, attempt: int, status: str, **detail) -> dict:
    """A SageMaker event of this job as EventBridge delivers it."""
    job = run.stack.sagemaker.describe_training_job(TrainingJobName=run.job(rank, attempt))
    tags = run.stack.sagemaker.list_tags(ResourceArn=job["TrainingJobArn"])["Tags"]
    return {
        "source": "aws.sagemaker",
        "detail-type": "SageMaker Training Job State Change",
        "detail": {
            "TrainingJobName": job["TrainingJobName"],
            "TrainingJobArn": job["TrainingJobArn"],
            "TrainingJobStatus": status,
            "SecondaryStatus": status,
            "SecondaryStatusTransitions": [],
            "Tags": tags,
            **detail,
        },
    }


def test_lost_instance_is_rerun_and_the_run_succeeds(stack):
    struck = stack.cloud.faults.add(LostInstance(job="*-r0-a1"))
    run = stack.start(stack.gated("lost", per="attempt"))
    stack.open_gate("lost", 2)
    assert run.wait()["status"] == "SUCCEEDED"
    assert struck.fired == 1
    assert classes(run) == [FailureClass.INFRASTRUCTURE, None]
    assert run.statuses() == {"r0-a1": "Failed", "r0-a2": "Completed"}


def test_duplicate_event_launches_nothing_twice(stack):
    stack.cloud.faults.add(LostInstance(job="*-r0-a1"))
    struck = stack.cloud.faults.add(EventFault(action="duplicate", copies=3, count=None))
    run = stack.start(stack.gated("duplicate", per="attempt"))
    stack.open_gate("duplicate", 2)
    assert run.wait()["status"] == "SUCCEEDED"
    assert struck.fired >= 4
    assert stack.calls("CreateTrainingJob") == 2
    assert classes(run) == [FailureClass.INFRASTRUCTURE, None]


def test_out_of_order_event_does_not_turn_a_record_back(stack):
    struck = stack.cloud.faults.add(EventFault(action="reorder", count=None, seconds=1.0))
    run = stack.start({"replicas": 1, "entrypoint": ["python", "-c", "pass"]})
    assert run.wait()["status"] == "SUCCEEDED"
    assert struck.fired >= 1
    for status in ("InProgress", "Stopping"):
        answer = stack.invoke("React", state_change(run, 0, 1, status))
        assert "noted" in answer["reaction"]
    assert run.record().current.status == "Completed"
    assert run.record().decision.next is Next.DONE


def test_out_of_order_event_does_not_shorten_a_history(stack):
    run = stack.start(stack.gated("history"))
    noted = wait_until(
        "Training in the record", lambda: (r := run.record()) and r.current.secondary == "Training" and r
    )
    assert len(noted.current.history) > 1
    older = [{"Status": "Starting", "StartTime": 1.0}]
    stack.invoke("React", state_change(run, 0, 1, "InProgress", SecondaryStatusTransitions=older))
    after = run.record()
    # A re-arming replaces the token, and nothing else.
    assert after.model_copy(update={"token": noted.token, "armed_at": noted.armed_at}) == noted
    stack.open_gate("history")
    assert run.wait()["status"] == "SUCCEEDED"


def test_lost_event_is_repaired_by_rearming(stack):
    struck = stack.cloud.faults.add(EventFault(action="drop", count=None))
    run = stack.start({"replicas": 1, "entrypoint": ["python", "-c", "pass"]})
    assert run.wait()["status"] == "SUCCEEDED"
    assert struck.fired >= 2
    assert stack.calls("CreateTrainingJob") == 1
    assert run.record().current.status == "Completed"


def test_late_event_of_an_old_attempt_is_dropped(stack):
    stack.cloud.faults.add(LostInstance(job="*-r0-a1"))
    run = stack.start(stack.gated("late", per="attempt"))
    before = wait_until(
        "attempt 2 in training",
        lambda: (r := run.record()) and r.current.attempt == 2 and r.current.secondary == "Training" and r,
    )
    answer = stack.invoke("React", state_change(run, 0, 1, "Completed"))
    assert answer["reaction"] == "dropped: attempt 1 is not the current one"
    assert run.record().attempts == before.attempts
    assert run.record().decision is None
    stack.open_gate("late", 2)
    assert run.wait()["status"] == "SUCCEEDED"


def test_foreign_job_name_changes_nothing(stack):
    run = stack.start(stack.gated("foreign-name"))
    run.wait_for_status(0, 1, "Training")
    event = state_change(run, 0, 1, "Completed")
    names = ["muster-nosuchrun-r0-a1", "other-job", f"{run.job()}-x", run.job(rank=7)]
    for name in names:
        event["detail"]["TrainingJobName"] = name
        assert stack.invoke("React", event)["reaction"].startswith("dropped: ")
    event["detail"]["TrainingJobName"] = run.job()
    event["detail"]["Tags"] = [{"Key": "muster:plan", "Value": "somebody else's"}]
    assert stack.invoke("React", event)["reaction"] == "dropped: the job does not belong to this run"
    assert run.record().decision is None
    stack.open_gate("foreign-name")
    assert run.wait()["status"] == "SUCCEEDED"


@pytest.mark.parametrize("disconnect", [False, True], ids=["answer is an error", "connection cut"])
def test_crash_between_create_training_job_and_the_answer_is_adopted_on_retry(stack, disconnect):
    fault = CallError(
        service="sagemaker", operation="CreateTrainingJob", after_effect=True, disconnect=disconnect, count=1
    )
    struck = stack.cloud.faults.add(fault)
    run = stack.start({"replicas": 1, "entrypoint": ["python", "-c", "pass"]})
    assert run.wait()["status"] == "SUCCEEDED"
    assert struck.fired == 1
    assert run.statuses() == {"r0-a1": "Completed"}


def test_function_that_dies_after_the_launch_is_repaired_by_the_workflow(stack):
    # Every try of the client meets the fault, so the function itself fails with the job already running.
    fault = CallError(service="sagemaker", operation="CreateTrainingJob", after_effect=True, count=TRIES)
    struck = stack.cloud.faults.add(fault)
    run = stack.start(stack.gated("dies"))
    run.wait_for_status(0, 1, "Training")
    struck.wait(fired=TRIES)
    stack.open_gate("dies")
    assert run.wait()["status"] == "SUCCEEDED"
    assert run.statuses() == {"r0-a1": "Completed"}


def test_refusal_after_a_lost_answer_does_not_launch_twice(stack):
    lost = stack.cloud.faults.add(
        CallError(service="sagemaker", operation="CreateTrainingJob", after_effect=True, count=1)
    )
    refused = stack.cloud.faults.add(
        CallError(
            service="sagemaker", operation="CreateTrainingJob", code="ThrottlingException", status=400, count=TRIES - 1
        )
    )
    run = stack.start(stack.gated("refused"))
    refused.wait(fired=TRIES - 1)
    stack.open_gate("refused")
    assert run.wait()["status"] == "SUCCEEDED"
    assert lost.fired == 1
    assert run.statuses() == {"r0-a1": "Completed"}
    assert classes(run) == [None]


def test_crash_between_the_decision_and_the_answer_to_the_workflow_is_repaired(stack):
    cut = stack.cloud.faults.add(CallError(service="states", operation="SendTaskSuccess", count=TRIES))
    run = stack.start({"replicas": 1, "entrypoint": ["python", "-c", "pass"]})
    assert run.wait()["status"] == "SUCCEEDED"
    assert cut.fired == TRIES
    assert stack.calls("CreateTrainingJob") == 1


def test_late_duplicate_of_a_launch_changes_nothing(stack):
    run = stack.start(stack.gated("late-launch"))
    run.wait_for_status(0, 1, "Training")
    request = {"run": run.name, "rank": 0, "attempt": 1, "token": "older", "entered_at": "2000-01-01T00:00:00.000Z"}
    assert stack.invoke("Attempt", request) == {"launch": "superseded"}
    assert run.record().token != "older"
    stack.open_gate("late-launch")
    assert run.wait()["status"] == "SUCCEEDED"
    assert stack.calls("CreateTrainingJob") == 1


def test_attempt_that_nobody_decided_on_is_not_launched(stack):
    run = stack.start(stack.gated("undecided"))
    run.wait_for_status(0, 1, "Training")
    request = {"run": run.name, "rank": 0, "attempt": 2, "token": "any", "entered_at": "2100-01-01T00:00:00.000Z"}
    assert stack.invoke("Attempt", request) == {"launch": "failed"}
    assert run.statuses() == {"r0-a1": "InProgress"}
    stack.open_gate("undecided")
    assert run.wait()["status"] == "SUCCEEDED"


def test_tags_that_users_change_do_not_make_a_job_foreign(stack):
    run = stack.start(stack.gated("tags", tags={"owner": "me"}))
    run.wait_for_status(0, 1, "Training")
    arn = stack.sagemaker.describe_training_job(TrainingJobName=run.job())["TrainingJobArn"]
    stack.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "owner", "Value": "ME"}])
    stack.open_gate("tags")
    assert run.wait()["status"] == "SUCCEEDED"


def test_resource_in_use_held_by_a_foreign_job_is_refused(stack):
    run_name = "taken-by-another"
    job = f"{stack.prefix}-{run_name}-r0-a1"
    spec = stack.gated("foreign-job")
    stack.sagemaker.create_training_job(
        TrainingJobName=job,
        AlgorithmSpecification={
            "TrainingImage": "muster-local/python:latest",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["python", "-c", "import time; time.sleep(300)"],
        },
        RoleArn=stack.outputs["ReplicaRoleArn"],
        OutputDataConfig={"S3OutputPath": f"s3://{stack.bucket}/output/foreign"},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 600},
    )
    run = stack.start(spec, name=run_name)
    assert run.wait()["status"] == "FAILED"
    assert "does not belong to this run" in run.describe()["cause"]
    assert classes(run) == [FailureClass.INVALID_REQUEST]
    assert stack.sagemaker.describe_training_job(TrainingJobName=job)["TrainingJobStatus"] == "InProgress"


def test_throttling_storm_delays_but_loses_nothing(stack):
    fault = CallError(
        service="sagemaker",
        operation="CreateTrainingJob",
        code="ThrottlingException",
        message="Rate exceeded",
        status=400,
        count=12,
    )
    struck = stack.cloud.faults.add(fault)
    run = stack.start({"replicas": 4, "entrypoint": ["python", "-c", "pass"]})
    assert run.wait()["status"] == "SUCCEEDED"
    assert struck.fired == 12
    assert sorted(run.statuses().values()) == ["Completed"] * 4


def test_throttle_that_outlasts_the_clients_patience_is_no_attempt(stack):
    # Every try of the function's client meets it: the workflow sends the same attempt again.
    fault = CallError(
        service="sagemaker",
        operation="CreateTrainingJob",
        code="ThrottlingException",
        message="Rate exceeded",
        status=400,
        count=TRIES,
    )
    struck = stack.cloud.faults.add(fault)
    none = {"throttle": {"max_reruns": 0}}
    run = stack.start({"replicas": 1, "entrypoint": ["python", "-c", "pass"], "reruns": none})
    assert run.wait(180)["status"] == "SUCCEEDED"
    assert struck.fired == TRIES
    assert classes(run) == [None]
    assert run.statuses() == {"r0-a1": "Completed"}


def test_capacity_error_is_rerun_within_its_budget(stack):
    struck = stack.cloud.faults.add(CapacityError(job="*-r0-*", count=2))
    run = stack.start(
        {"replicas": 1, "entrypoint": ["python", "-c", "pass"], "reruns": {"capacity": {"max_reruns": 2}}}
    )
    assert run.wait()["status"] == "SUCCEEDED"
    assert struck.fired == 2
    assert classes(run) == [FailureClass.CAPACITY, FailureClass.CAPACITY, None]
    assert run.result().reruns == 2


def test_capacity_error_beyond_its_budget_ends_the_run(stack):
    stack.cloud.faults.add(CapacityError(job="*-r0-*", count=None))
    run = stack.start(
        {"replicas": 1, "entrypoint": ["python", "-c", "pass"], "reruns": {"capacity": {"max_reruns": 1}}}
    )
    ended = run.wait()
    assert ended["status"] == "FAILED"
    assert "CapacityError" in ended["cause"]
    assert classes(run) == [FailureClass.CAPACITY] * 2


def test_quota_error_is_waited_out(stack):
    struck = stack.cloud.faults.add(QuotaError(job="*-r0-*", count=2))
    budget = {"max_reruns": 5, "delay_seconds": 1}
    run = stack.start({"replicas": 1, "entrypoint": ["python", "-c", "pass"], "reruns": {"quota": budget}})
    assert run.wait()["status"] == "SUCCEEDED"
    assert struck.fired == 2
    assert classes(run) == [FailureClass.QUOTA, FailureClass.QUOTA, None]


def test_spot_interruption_stays_within_the_attempt(stack):
    struck = stack.cloud.faults.add(SpotInterruption(job="*-r0-a1"))
    run = stack.start(stack.gated("spot", spot=True))
    struck.wait()
    stack.open_gate("spot")
    assert run.wait()["status"] == "SUCCEEDED"
    assert classes(run) == [None]
    # By the job itself: what the record has not heard of by its end it need not know.
    shown = stack.sagemaker.describe_training_job(TrainingJobName=run.job())
    secondaries = [transition["Status"] for transition in shown["SecondaryStatusTransitions"]]
    assert "Interrupted" in secondaries
    assert secondaries.count("Training") == 2


def test_spot_wait_that_runs_out_is_rerun(stack):
    stack.cloud.faults.add(SpotInterruption(job="*-r0-a1", wait_seconds=60))
    spec = stack.gated("spot-wait", per="attempt", spot=True, max_runtime_seconds=20, max_wait_seconds=20)
    run = stack.start({**spec, "reruns": {"spot": {"max_reruns": 1}}})
    stack.open_gate("spot-wait", 2)
    assert run.wait()["status"] == "SUCCEEDED"
    assert classes(run) == [FailureClass.SPOT, None]


def test_user_code_error_is_not_rerun_and_its_reason_arrives(stack):
    program = (
        "import os, sys; path = os.environ['SAGEMAKER_BASE_DIR'] + '/output/failure'; "
        "open(path, 'w').write('no such file: x'); sys.exit(3)"
    )
    run = stack.start({"replicas": 1, "entrypoint": ["python", "-c", program]})
    ended = run.wait()
    assert ended["status"] == "FAILED"
    assert ended["error"] == "Muster.RunFailed"
    assert "no such file: x" in ended["cause"]
    assert classes(run) == [FailureClass.USER_CODE]
    assert stack.calls("CreateTrainingJob") == 1


def test_how_a_replica_ended_is_told_and_decides_what_follows(stack):
    spec = {"trainer": "tests.support.jobs.endings:train", "on_replica_failure": "continue", "min_replicas": 1}
    patience = {"grace_seconds": 0.0, "timeout_seconds": 60.0}
    run = stack.start({**spec, "replicas": len(ENDINGS), "rendezvous": patience})
    assert run.wait()["status"] == "SUCCEEDED"
    fenced, saved, memory, killed = (replica.attempts for replica in run.result().replicas)
    for first, second in (fenced, saved):
        assert (first.failure_class, second.failure_class) == (FailureClass.INFRASTRUCTURE, None)
    assert "[fenced] Attempt 1, incarnation 1 of rank 0 is superseded" in fenced[0].reason
    assert "[saved] The replica was asked to stop (SIGTERM)." in saved[0].reason
    for [only] in (memory, killed):
        assert only.failure_class is FailureClass.USER_CODE
    # SageMaker cuts the reason, and with it the exit code, off the end.
    assert "exit code" not in memory[0].reason
    assert memory[0].reason.startswith("AlgorithmError: [out-of-memory] Choose an instance_type with more memory")
    assert "most likely out of memory: choose an instance_type with more memory" in killed[0].reason


def test_partial_launch_stops_what_was_launched(stack):
    # Rank 2 is held until the others are launched.
    throttled = CallError(service="sagemaker", resource="*-r2-*", code="ThrottlingException", status=400, count=None)
    held = stack.cloud.faults.add(throttled)
    stack.cloud.faults.add(QuotaError(job="*-r2-*", count=None))
    run = stack.start(stack.gated("partial", replicas=3, reruns={"quota": {"max_reruns": 1}}))
    run.wait_for_training(0, 1)
    held.remove()
    assert run.wait()["status"] == "FAILED"
    outcomes = [replica.outcome for replica in run.result().replicas]
    assert outcomes == [ReplicaOutcome.STOPPED, ReplicaOutcome.STOPPED, ReplicaOutcome.FAILED]
    assert run.statuses() == {"r0-a1": "Stopped", "r1-a1": "Stopped"}


def test_loss_that_the_policy_allows_leaves_the_others_alone(stack):
    stack.cloud.faults.add(Crash(job="*-r1-*"))
    run = stack.start(stack.gated("continue", replicas=3, on_replica_failure="continue", min_replicas=2))
    run.wait_for_status(1, 1, "Failed")
    stack.open_gate("continue")
    assert run.wait()["status"] == "SUCCEEDED"
    assert [replica.outcome.value for replica in run.result().replicas] == ["succeeded", "failed", "succeeded"]


def test_losses_below_the_quorum_stop_the_run(stack):
    run = stack.start(stack.gated("below-quorum", replicas=3, on_replica_failure="continue", min_replicas=2))
    run.wait_for_training(0, 1, 2)
    stack.cloud.faults.add(Crash(job="*-r[01]-*", count=2))
    ended = run.wait()
    assert ended["status"] == "FAILED"
    assert "was lost: its retry budget for user-code" in ended["cause"]
    assert run.statuses()["r2-a1"] == "Stopped"


def test_stop_execution_during_launch_leaves_no_job(stack):
    throttled = CallError(
        service="sagemaker", operation="CreateTrainingJob", code="ThrottlingException", status=400, count=6
    )
    struck = stack.cloud.faults.add(throttled)
    run = stack.start(stack.gated("stop-launch", replicas=4))
    wait_until("the first call", lambda: stack.calls("CreateTrainingJob") > 0)
    stack.stepfunctions.stop_execution(executionArn=run.execution_arn)
    # What was in flight when the execution was stopped has its time to arrive.
    struck.wait(fired=6)
    result = run.result()
    assert result.verdict is Verdict.STOPPED
    wait_until("the last job's end", lambda: not stack.cloud.running_jobs())
    assert set(run.statuses().values()) <= {"Stopped"}
    assert {replica.outcome for replica in result.replicas} <= {ReplicaOutcome.STOPPED, ReplicaOutcome.NOT_LAUNCHED}


def test_fence_stands_before_a_launch_that_is_tried_again(stack):
    # The record is armed, but every try to create the job fails: the function fails, and is called again.
    failing = CallError(service="sagemaker", operation="CreateTrainingJob", resource="*-fenced-*", count=None)
    struck = stack.cloud.faults.add(failing)
    run = stack.start(stack.gated("fenced"), "fenced")
    struck.wait(fired=TRIES)
    cause, at = FenceCause.EXECUTION_STOPPED, "2026-01-01T00:00:00.000Z"
    fence = Fence(verdict=Verdict.STOPPED, cause=cause, reason="a test", at=at)
    stack.s3.put_object(Bucket=stack.bucket, Key=run.layout.fence, Body=fence.to_json(), IfNoneMatch="*")
    assert run.wait()["status"] == "FAILED"
    # Each call of the function before the fence stood tried as often as it may.
    assert struck.fired % TRIES == 0
    assert run.statuses() == {}
    assert run.result().replicas[0].outcome is ReplicaOutcome.STOPPED


def test_job_that_is_born_behind_the_fence_is_stopped_when_it_reports(stack):
    run = stack.start(stack.gated("born"))
    run.wait_for_status(0, 1, "Training")
    cause, at = FenceCause.EXECUTION_STOPPED, "2026-01-01T00:00:00.000Z"
    fence = Fence(verdict=Verdict.STOPPED, cause=cause, reason="a test", at=at)
    stack.s3.put_object(Bucket=stack.bucket, Key=run.layout.fence, Body=fence.to_json(), IfNoneMatch="*")
    answer = stack.invoke("React", state_change(run, 0, 1, "InProgress"))
    assert answer["reaction"].endswith("stopped: the run is stopping")
    assert run.wait()["status"] == "FAILED"
    assert run.statuses() == {"r0-a1": "Stopped"}


def test_stop_execution_during_training_leaves_no_job(stack):
    run = stack.start(stack.gated("stop-training", replicas=2))
    run.wait_for_training(0, 1)
    stack.stepfunctions.stop_execution(executionArn=run.execution_arn)
    result = run.result()
    assert (result.verdict, result.reason) == (Verdict.STOPPED, "the execution was stopped")
    assert [replica.outcome for replica in result.replicas] == [ReplicaOutcome.STOPPED] * 2
    assert {replica.attempts[-1].failure_class for replica in result.replicas} == {FailureClass.STOPPED_BY_MUSTER}
    assert run.statuses() == {"r0-a1": "Stopped", "r1-a1": "Stopped"}
    # Nobody waits on the tokens any more, and that is no error.
    wait_until("the ends in the records", lambda: all(run.record(rank).decision for rank in (0, 1)))


def test_one_replica_that_cannot_be_stopped_does_not_shield_the_others(stack):
    run = stack.start(stack.gated("shield", replicas=3))
    for rank in range(3):
        run.wait_for_record(rank, "Training")
    stack.s3.put_object(Bucket=stack.bucket, Key=run.layout.record(0), Body=b"damaged")
    stack.stepfunctions.stop_execution(executionArn=run.execution_arn)
    result = run.result()
    assert set(run.statuses().values()) == {"Stopped"}
    assert [replica.outcome.value for replica in result.replicas] == ["unknown", "stopped", "stopped"]
    assert "control/" in result.replicas[0].problem
    # Nor can the events of its job be noted.
    errors = wait_until("the dead letters", lambda: stack.letters.about(run.job(0)))
    damaged = f"s3://{stack.bucket}/{run.layout.record(0)} cannot be read"
    assert [error for error in errors if not error.startswith(damaged)] == []


def test_replayed_start_execution_with_the_same_input_is_the_same_run(stack):
    spec = stack.gated("replay")
    run = stack.start(spec)
    run.wait_for_status(0, 1, "Training")
    assert stack.start(spec, name=run.name).execution_arn == run.execution_arn
    stack.open_gate("replay")
    assert run.wait()["status"] == "SUCCEEDED"
    assert stack.calls("CreateTrainingJob") == 1


def test_replayed_start_execution_with_another_input_is_refused(stack):
    run = stack.start(stack.gated("other-input"))
    with pytest.raises(ClientError, match="ExecutionAlreadyExists"):
        stack.start({"replicas": 2, "entrypoint": ["python"]}, name=run.name)
    stack.open_gate("other-input")
    assert run.wait()["status"] == "SUCCEEDED"


def test_name_of_an_older_run_is_refused_and_the_older_run_is_left_alone(stack):
    run = stack.start(stack.gated("older"))
    run.wait_for_status(0, 1, "Training")
    # After 90 days Step Functions forgets a name; the run, its jobs and its objects are still there.
    answer = stack.invoke(
        "Plan",
        {
            "execution_name": run.name,
            "execution_arn": run.execution_arn + "-later",
            "started_at": "2030-01-01T00:00:00.000Z",
            "input": stack.gated("older"),
        },
    )
    assert answer["accepted"] is False
    assert answer["error"] == "Muster.RunNameTakenError"
    later = {"executionArn": run.execution_arn + "-later", "name": run.name, "startDate": round(time.time() * 1000)}
    ended = {"detail": {**later, "status": "FAILED"}}
    assert stack.invoke("Stop", ended) == {"stop": "nothing to stop"}
    assert run.statuses() == {"r0-a1": "InProgress"}
    stack.open_gate("older")
    assert run.wait()["status"] == "SUCCEEDED"


def test_expired_task_token_is_replaced_and_the_end_still_arrives(stack):
    run = stack.start(stack.gated("expired"))
    run.wait_for_status(0, 1, "Training")
    first = run.record()
    wait_until("a fresh token", lambda: run.record().token != first.token)
    with pytest.raises(ClientError) as refused:
        stack.stepfunctions.send_task_success(taskToken=first.token, output="{}")
    assert refused.value.response["Error"]["Code"] in {"TaskTimedOut", "InvalidToken", "TaskDoesNotExist"}
    stack.open_gate("expired")
    assert run.wait()["status"] == "SUCCEEDED"
    assert stack.calls("CreateTrainingJob") == 1


def test_two_settles_at_once_write_one_result(stack):
    run = stack.start({"replicas": 2, "entrypoint": ["python", "-c", "pass"]})
    assert run.wait()["status"] == "SUCCEEDED"
    stack.s3.delete_object(Bucket=stack.bucket, Key=run.layout.result)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: stack.invoke("Settle", {"run": run.name}), range(4)))
    # Each call had a clock of its own; one of them was written, and all told of that one.
    assert {answer["settled_at"] for answer in answers} == {run.result().settled_at}


def test_image_that_does_not_exist_reaches_the_result(stack):
    run = stack.start({"replicas": 1, "image": "nowhere/nothing:1", "entrypoint": ["python"]})
    ended = run.wait()
    assert ended["status"] == "FAILED"
    assert "nowhere/nothing:1" in ended["cause"]
    assert "nowhere/nothing:1" in run.result().replicas[0].attempts[0].reason
