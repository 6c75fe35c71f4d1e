import pytest

from muster.contract.aws.failure_classes import FailureClass, JobEnd, classify_end, classify_request_error, explained
from muster.contract.aws.job_status import JobStatus
from muster.contract.run.exits import ReplicaExit, read_exit, with_exit_word

C, F, S = JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.STOPPED


@pytest.mark.parametrize(
    ("status", "secondary", "reason", "expected"),
    [
        (C, "Completed", "", None),
        (S, "Stopped", "", FailureClass.STOPPED_BY_USER),
        (S, "MaxRuntimeExceeded", "", FailureClass.TIMEOUT),
        (S, "MaxWaitTimeExceeded", "", FailureClass.SPOT),
        (F, "MaxWaitTimeExceeded", "", FailureClass.SPOT),
        (F, "Interrupted", "", FailureClass.SPOT),
        (F, "Failed", "CapacityError: Unable to provision requested ML compute capacity.", FailureClass.CAPACITY),
        (
            F,
            "Failed",
            "InternalServerError: We encountered an internal error.  Please try again.",
            FailureClass.INFRASTRUCTURE,
        ),
        (F, "Failed", "AlgorithmError: ExecuteUserScriptError, exit code: 1", FailureClass.USER_CODE),
        (F, "Failed", f"AlgorithmError: , exit code: {ReplicaExit.BAD_INPUT}", FailureClass.INVALID_REQUEST),
        (F, "Failed", f"AlgorithmError: , exit code: {ReplicaExit.RENDEZVOUS}", FailureClass.INFRASTRUCTURE),
        (F, "Failed", f"AlgorithmError: , exit code: {ReplicaExit.FENCED}", FailureClass.INFRASTRUCTURE),
        (F, "Failed", "AlgorithmError: , exit code: 71", FailureClass.USER_CODE),
        # A replica's own word comes first, whatever of its text SageMaker has cut off.
        (F, "Failed", "AlgorithmError: [fenced] Attempt 1 of rank 0 is superseded", FailureClass.INFRASTRUCTURE),
        (F, "Failed", "AlgorithmError: [saved] The replica was asked to stop (SIG", FailureClass.INFRASTRUCTURE),
        (F, "Failed", "AlgorithmError: [rendezvous] No quorum, exit code: 69", FailureClass.INFRASTRUCTURE),
        (F, "Failed", "AlgorithmError: [bad-input] the trainer a:b cannot", FailureClass.INVALID_REQUEST),
        (F, "Failed", "AlgorithmError: [out-of-memory] a:b failed: MemoryError", FailureClass.USER_CODE),
        (F, "Failed", "AlgorithmError: a:b failed: [fenced] by a dog, exit code: 1", FailureClass.USER_CODE),
        (F, "Failed", "AlgorithmError: [unheard-of] word, exit code: 75", FailureClass.INFRASTRUCTURE),
        # A rule of `watch` has ended the attempt. A program may end with the same codes.
        (F, "Failed", "AlgorithmError: [hang] process 3 of 4 has made no step for 612 s", FailureClass.INFRASTRUCTURE),
        (F, "Failed", "AlgorithmError: [slow] it takes 4 s, exit code: 81", FailureClass.INFRASTRUCTURE),
        (F, "Failed", "AlgorithmError: [loss] its metric loss is nan", FailureClass.INFRASTRUCTURE),
        (F, "Failed", "AlgorithmError: [no-round] no round for 69 s", FailureClass.INFRASTRUCTURE),
        (F, "Failed", f"AlgorithmError: , exit code: {ReplicaExit.HANG}", FailureClass.USER_CODE),
        # What the user's own text says decides nothing.
        (F, "Failed", "AlgorithmError: InternalServerError: my model, exit code: 1", FailureClass.USER_CODE),
        (F, "Failed", "AlgorithmError: raised CapacityError, exit code: 2", FailureClass.USER_CODE),
        (F, "Failed", "AlgorithmError: child died, exit code: 75\nTraceback: more text", FailureClass.USER_CODE),
        (F, "Failed", "ClientError: Cannot pull the image", FailureClass.INVALID_REQUEST),
        (F, "Failed", "Please try again: ResourceLimitExceeded for ml.p5", FailureClass.QUOTA),
        (F, "Failed", "", FailureClass.UNKNOWN),
        # AWS Batch user guide: the two ways in which SageMaker says that there was no capacity.
        (
            F,
            "Failed",
            (
                "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML "
                "instance type."
            ),
            FailureClass.CAPACITY,
        ),
        (S, "MaxPendingTimeExceeded", "", FailureClass.CAPACITY),
        # SageMaker developer guide, cluster repairs: a repair that failed.
        (F, "Failed", "Repairing training cluster due to hardware failure", FailureClass.INFRASTRUCTURE),
        # Reported by users.
        (F, "MaxRuntimeExceeded", "", FailureClass.TIMEOUT),
        (F, "Failed", "AlgorithmError: Exit Code: 1", FailureClass.USER_CODE),
        (F, "Failed", "AlgorithmError: , exit code: 137", FailureClass.USER_CODE),
        (F, "Failed", "AlgorithmError: framework error: \nTraceback (most recent call last):", FailureClass.USER_CODE),
        (
            F,
            "Failed",
            "AlgorithmError: RuntimeError: CUDA error: uncorrectable ECC error encountered, exit code: 1",
            FailureClass.INFRASTRUCTURE,
        ),
        (
            F,
            "Failed",
            (
                "ClientError: Cannot pull algorithm container. Either the image does not exist or its permissions are "
                "incorrect."
            ),
            FailureClass.INVALID_REQUEST,
        ),
        (
            F,
            "Failed",
            "ClientError: SageMaker was unable to assume the role 'arn:aws:iam::123456789012:role/SageMakerRole'",
            FailureClass.INVALID_REQUEST,
        ),
        (
            F,
            "Failed",
            "ClientError: Data download failed:NoSuchKey (404): The requested key does not exist",
            FailureClass.INVALID_REQUEST,
        ),
        (
            F,
            "Failed",
            "ClientError: Please use an instance type with more memory, or reduce the size of training data",
            FailureClass.INVALID_REQUEST,
        ),
        (F, "Failed", "ClientError: Data download failed: SlowDown (503): Please reduce", FailureClass.THROTTLE),
        (
            F,
            "Failed",
            "The account-level service limit 'ml.p3.2xlarge for training job usage' is 0 Instances",
            FailureClass.QUOTA,
        ),
        # A full volume: a rerun would fill it again.
        (F, "Failed", "ClientError: Data download failed:Insufficient disk space", FailureClass.INVALID_REQUEST),
        (F, "Failed", "ClientError: Artifact upload failed:Insufficient disk space", FailureClass.INVALID_REQUEST),
        (F, "Failed", "AlgorithmError: [Errno 28] No space left on device, exit code: 1", FailureClass.USER_CODE),
        (F, "SomethingNew", "The moon is full", FailureClass.UNKNOWN),
    ],
)
def test_the_class_of_an_end(status, secondary, reason, expected):
    assert classify_end(JobEnd(status, secondary, reason)) == expected


@pytest.mark.parametrize("status", [JobStatus.IN_PROGRESS, JobStatus.STOPPING])
def test_stopping_is_not_terminal(status):
    with pytest.raises(ValueError, match="not a terminal job status"):
        classify_end(JobEnd(status, "Stopping"))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("ResourceLimitExceeded", FailureClass.QUOTA),
        ("ThrottlingException", FailureClass.THROTTLE),
        ("ValidationException", FailureClass.INVALID_REQUEST),
        ("AccessDeniedException", FailureClass.INVALID_REQUEST),
        ("RequestLimitExceeded", FailureClass.THROTTLE),
        ("ResourceNotFound", FailureClass.INVALID_REQUEST),
        ("ServiceUnavailable", FailureClass.INFRASTRUCTURE),
        ("SomethingNew", FailureClass.UNKNOWN),
    ],
)
def test_the_class_of_a_refused_request(code, expected):
    assert classify_request_error(code) is expected


@pytest.mark.parametrize("code", ReplicaExit)
def test_an_exit_is_read_as_it_was_written_even_if_its_end_is_cut_off(code):
    reason = f"AlgorithmError: {with_exit_word(code, 'x' * 2_000)}"[:1_024]
    assert read_exit(reason) is code


@pytest.mark.parametrize("reason", ["", "AlgorithmError: , exit code: 2", "AlgorithmError: [", "[fenced] Attempt 1"])
def test_an_exit_that_is_not_ours_is_none(reason):
    assert read_exit(reason) is None


@pytest.mark.parametrize("text", ["", "x" * 1_000])
def test_a_killed_process_is_explained(text):
    reason = explained(JobEnd(F, "Failed", f"AlgorithmError: {text}"[:1_000] + ", exit code: 137"))
    assert reason.endswith(
        "(most likely out of memory: choose an instance_type with more memory, or train on smaller batches)"
    )
    assert len(reason) <= 1_024


@pytest.mark.parametrize("reason", ["AlgorithmError: , exit code: 1", "AlgorithmError: exit code: 137 was seen", ""])
def test_any_other_reason_is_sagemakers(reason):
    assert explained(JobEnd(F, "Failed", reason)) == reason
    assert explained(JobEnd(S, "Stopped", f"{reason}, exit code: 137")).endswith("137")
