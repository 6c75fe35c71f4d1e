import pytest

from muster.contract.exits import ReplicaExit
from muster.contract.failures import FailureClass, JobEnd, classify_end, classify_request_error
from muster.contract.status import JobStatus

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
        (F, "SomethingNew", "The moon is full", FailureClass.UNKNOWN),
    ],
)
def test_the_class_of_an_end(status, secondary, reason, expected):
    assert classify_end(JobEnd(status, secondary, reason)) == expected


@pytest.mark.parametrize("status", [JobStatus.IN_PROGRESS, JobStatus.STOPPING])
def test_stopping_is_no_end(status):
    with pytest.raises(ValueError, match="not the end"):
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
