"""Training jobs, as far as the calls go beyond what functions show: refusals, names, and calls that are throttled."""

import pytest
from botocore.exceptions import ClientError

from muster.control.aws.aws_errors import patiently
from muster.control.runtime.clock import TimeBudget
from tests.memory import AwsError, Fault, server_error, throttle
from tests.memory.harness import PREFIX, RUN, ControlHarness
from tests.support.control_steps import Row


def test_a_refusal_does_not_repeat_values_that_may_be_secret(harness: ControlHarness) -> None:
    harness.plan(environment={"TOKEN": "hunter2"})
    message = (
        "3 validation errors detected: Value 'ml.none.large' at 'resourceConfig.instanceType' failed to satisfy "
        "constraint; Value '{TOKEN=hunter2, URL='http://u:hunter2@h'}' at 'environment' failed to satisfy constraint: "
        "Map value must have length less than or equal to 512; "
        "Value '[--token, hunter2]' at 'algorithmSpecification.containerArguments' failed to satisfy constraint"
    )
    harness.cloud.calls.inject(Fault("CreateTrainingJob", AwsError("ValidationException", message, 400)))
    harness.arm()
    reason = harness.record().current.reason
    assert "hunter2" not in reason
    assert "'ml.none.large' at 'resourceConfig.instanceType'" in reason
    assert "(not shown) at 'environment'" in reason


def test_a_stop_that_is_refused_for_a_job_that_runs_is_an_error(harness: ControlHarness) -> None:
    """A ValidationException is how Stop answers for a job that has ended; here it means something else."""
    harness.plan()
    harness.arm()
    refused = AwsError("ValidationException", "Status Stopping is not valid")
    harness.cloud.calls.inject(Fault("StopTrainingJob", refused))
    with pytest.raises(ClientError, match="ValidationException"):
        harness.plane.backends.training.stop(harness.job())
    harness.plane.backends.training.stop(harness.job())
    harness.plane.backends.training.stop(harness.job())
    harness.cloud.clock.advance(120)
    harness.plane.backends.training.stop(harness.job())
    assert harness.cloud.training.names("Stopped") == [harness.job()]


def test_names_of_another_run_that_contain_ours_are_not_ours(harness: ControlHarness) -> None:
    """ListTrainingJobs filters by a part of the name."""
    for name in (RUN, "muster-one", "one-r0"):
        harness.plan(name)
        harness.arm(run=name)
    harness.cloud.client("sagemaker").create_training_job(
        **{**harness.cloud.calls.of("CreateTrainingJob")[0], "TrainingJobName": "x-muster-one-r0-a1"}
    )
    found = harness.plane.backends.training.under_names_of(PREFIX, RUN)
    assert [str(job.name) for job in found] == ["muster-one-r0-a1"]
    assert len(list(harness.plane.backends.training.active(PREFIX, TimeBudget.of(60)))) == 3


# --- calls that are throttled ---------------------------------------------------------------------


def test_patience_ends_with_the_budget(harness: ControlHarness) -> None:
    harness.plan()
    harness.cloud.calls.inject(throttle("DescribeTrainingJob", None))
    harness.plane.backends.training.patience = TimeBudget.of(100)
    with pytest.raises(ClientError, match="Throttling"):
        harness.plane.backends.training.find("any")
    assert harness.cloud.clock.monotonic() == pytest.approx(100, abs=1)


def test_only_what_another_try_may_change_is_tried_again(row: Row) -> None:
    operation = "DescribeTrainingJob"
    for fault, tries in ((server_error(operation, 2), 3), (Fault(operation, AwsError("AccessDenied")), 1)):
        with row(fault) as harness:
            sagemaker = harness.cloud.client("sagemaker")
            harness.cloud.calls.inject(fault)
            with pytest.raises(ClientError):
                patiently(lambda: sagemaker.describe_training_job(TrainingJobName="any"), TimeBudget.of(60))  # noqa: B023
            assert harness.cloud.calls.counts()[operation] == tries
