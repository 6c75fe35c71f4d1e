"""Every class of end, driven through the deployed stack; those that a named fault drives stand in tests/faults."""

from __future__ import annotations

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.result import ReplicaOutcome
from muster.local.faults import CallError, LostInstance
from tests.support.waiting import wait_until

NEVER = {"max_reruns": 0}


def test_each_replica_ends_in_a_class_of_its_own_and_the_run_goes_on_without_it(stack):
    stopped, unknown, throttled = 1, 2, 3
    stack.s3.put_object(Bucket=stack.bucket, Key="output/classes/data", Body=b"x")
    source = {"s3_data_source": {"s3_uri": f"s3://{stack.bucket}/output/classes/"}}
    channel = {"channel_name": "data", "data_source": source}
    stack.cloud.faults.add(
        CallError(service="s3", resource="*output/classes/data*", count=None, code="SlowDown", status=503)
    )
    stack.cloud.faults.add(
        CallError(
            service="sagemaker", operation="CreateTrainingJob", resource=f"*-r{unknown}-*", code="New", status=400
        )
    )
    spec = stack.gated(
        "classes",
        per="rank",
        replicas=4,
        on_replica_failure="continue",
        min_replicas=1,
        overrides={str(throttled): {"input_data_config": [channel]}},
        reruns={"unknown": NEVER, "throttle": NEVER},
    )
    # The channel is a prefix of the run's own, which its replicas may read.
    run = stack.start(spec, "classes")
    run.wait_for_record(stopped, "Training")
    stack.sagemaker.stop_training_job(TrainingJobName=run.job(stopped))
    stack.open_gate("classes", 0)
    assert run.wait()["status"] == "SUCCEEDED"
    replicas = run.result().replicas
    assert {replica.rank: replica.attempts[-1].failure_class for replica in replicas} == {
        0: None,
        stopped: FailureClass.STOPPED_BY_USER,
        unknown: FailureClass.UNKNOWN,
        throttled: FailureClass.THROTTLE,
    }
    # None of them is rerun without a budget, and a stop is never a success.
    assert [len(replica.attempts) for replica in replicas] == [1] * 4
    assert [replica.outcome for replica in replicas] == [ReplicaOutcome.SUCCEEDED, *[ReplicaOutcome.FAILED] * 3]


def test_a_job_that_runs_too_long_is_not_rerun_without_a_budget(stack):
    run = stack.start(stack.gated("too-long", max_runtime_seconds=2))
    assert run.wait()["status"] == "FAILED"
    [only] = run.result().replicas[0].attempts
    assert only.failure_class is FailureClass.TIMEOUT


def test_a_run_shrinks_and_grows_back_while_a_replica_is_replaced(stack):
    stack.cloud.faults.add(LostInstance(job="*-r2-a1"))
    budget = {"infrastructure": {"max_reruns": 1, "delay_seconds": 3}}
    run = stack.start(stack.gated("grows", replicas=3, on_replica_failure="continue", min_replicas=2, reruns=budget))
    run.wait_for_training(0, 1)
    wait_until("the end of the lost one", lambda: (found := run.record(2)) and found.attempts[0].ended_at)
    # The others are enough, and go on.
    assert {name: status for name, status in run.statuses().items() if name[1] != "2"} == {
        "r0-a1": "InProgress",
        "r1-a1": "InProgress",
    }
    run.wait_for_status(2, 2, "Training")
    stack.open_gate("grows")
    assert run.wait()["status"] == "SUCCEEDED"
    assert [replica.outcome for replica in run.result().replicas] == [ReplicaOutcome.SUCCEEDED] * 3
    wait_until("every job's end", lambda: set(run.statuses().values()) == {"Completed", "Failed"})
