"""The class of a job's end and of a refused request, and what a reason says beside it."""

import pytest

from muster.contract.aws.failure_classes import FailureClass, JobEnd, classify_end, classify_request_error, explained
from muster.contract.aws.job_status import JobStatus
from muster.contract.exits import ReplicaExit, read_exit, with_exit_word

C, F, S = JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.STOPPED
INVALID, INFRASTRUCTURE, USER_CODE = FailureClass.INVALID_REQUEST, FailureClass.INFRASTRUCTURE, FailureClass.USER_CODE
CAPACITY, QUOTA, SPOT, THROTTLE = FailureClass.CAPACITY, FailureClass.QUOTA, FailureClass.SPOT, FailureClass.THROTTLE

# Status, secondary status and reason of an end.
ENDS: list[tuple[JobStatus, str, str, FailureClass | None]] = [
    (C, "Completed", "", None),
    (S, "Stopped", "", FailureClass.STOPPED_BY_USER),
    (S, "MaxRuntimeExceeded", "", FailureClass.TIMEOUT),
    (S, "MaxWaitTimeExceeded", "", SPOT),
    (F, "MaxWaitTimeExceeded", "", SPOT),
    (F, "Interrupted", "", SPOT),
    (S, "MaxPendingTimeExceeded", "", CAPACITY),
    # Reported by users.
    (F, "MaxRuntimeExceeded", "", FailureClass.TIMEOUT),
    (F, "SomethingNew", "The moon is full", FailureClass.UNKNOWN),
]
# The reason of a job that has failed, as SageMaker writes it.
REASONS: list[tuple[str, FailureClass]] = [
    ("InternalServerError: We encountered an internal error.  Please try again.", INFRASTRUCTURE),
    (f"AlgorithmError: , exit code: {ReplicaExit.BAD_INPUT}", INVALID),
    (f"AlgorithmError: , exit code: {ReplicaExit.RENDEZVOUS}", INFRASTRUCTURE),
    (f"AlgorithmError: , exit code: {ReplicaExit.FENCED}", INFRASTRUCTURE),
    ("AlgorithmError: , exit code: 71", USER_CODE),
    # A replica's own word comes first, whatever of its text SageMaker has cut off.
    ("AlgorithmError: [fenced] Attempt 1 of rank 0 is superseded", INFRASTRUCTURE),
    ("AlgorithmError: [saved] The replica was asked to stop (SIG", INFRASTRUCTURE),
    ("AlgorithmError: [out-of-memory] a:b failed: MemoryError", USER_CODE),
    ("AlgorithmError: a:b failed: [fenced] by a dog, exit code: 1", USER_CODE),
    ("AlgorithmError: [unheard-of] word, exit code: 75", INFRASTRUCTURE),
    # A rule of `watch` has ended the attempt. A program may end with the same codes.
    ("AlgorithmError: [hang] process 3 of 4 has made no step for 612 s", INFRASTRUCTURE),
    ("AlgorithmError: [slow] it takes 4 s, exit code: 81", INFRASTRUCTURE),
    ("AlgorithmError: [divergence] the norm of its update, 8, is 3.8 times", INFRASTRUCTURE),
    (f"AlgorithmError: , exit code: {ReplicaExit.HANG}", USER_CODE),
    # What the user's own text says decides nothing.
    ("AlgorithmError: InternalServerError: my model, exit code: 1", USER_CODE),
    ("AlgorithmError: raised CapacityError, exit code: 2", USER_CODE),
    ("AlgorithmError: child died, exit code: 75\nTraceback: more text", USER_CODE),
    ("Please try again: ResourceLimitExceeded for ml.p5", QUOTA),
    ("", FailureClass.UNKNOWN),
    # AWS Batch user guide.
    ("CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML", CAPACITY),
    # SageMaker developer guide, cluster repairs: a repair that failed.
    ("Repairing training cluster due to hardware failure", INFRASTRUCTURE),
    ("AlgorithmError: , exit code: 137", USER_CODE),
    ("AlgorithmError: framework error: \nTraceback (most recent call last):", USER_CODE),
    ("AlgorithmError: RuntimeError: CUDA error: uncorrectable ECC error encountered, exit code: 1", INFRASTRUCTURE),
    ("ClientError: Cannot pull algorithm container. Either the image does not exist or its permissions are", INVALID),
    ("ClientError: Data download failed:NoSuchKey (404): The requested key does not exist", INVALID),
    ("ClientError: Data download failed: SlowDown (503): Please reduce", THROTTLE),
    ("The account-level service limit 'ml.p3.2xlarge for training job usage' is 0 Instances", QUOTA),
    # A full volume: a rerun would fill it again.
    ("ClientError: Artifact upload failed:Insufficient disk space", INVALID),
    ("AlgorithmError: [Errno 28] No space left on device, exit code: 1", USER_CODE),
]


def test_the_class_of_an_end() -> None:
    ends = [*ENDS, *((F, "Failed", reason, expected) for reason, expected in REASONS)]
    found = [(*end, expected, classify_end(JobEnd(*end))) for *end, expected in ends]
    assert [end for end in found if end[-1] != end[-2]] == []
    for status in (JobStatus.IN_PROGRESS, JobStatus.STOPPING):
        with pytest.raises(ValueError, match="not a terminal job status"):
            classify_end(JobEnd(status, "Stopping"))


def test_the_class_of_a_refused_request() -> None:
    codes = {
        QUOTA: "ResourceLimitExceeded",
        THROTTLE: "ThrottlingException RequestLimitExceeded",
        INVALID: "ValidationException AccessDeniedException ResourceNotFound",
        INFRASTRUCTURE: "ServiceUnavailable",
        FailureClass.UNKNOWN: "SomethingNew",
    }
    expected = {code: failure_class for failure_class, those in codes.items() for code in those.split()}
    assert {code: classify_request_error(code) for code in expected} == expected


def test_an_exit_is_read_as_it_was_written_even_if_its_end_is_cut_off() -> None:
    for code in ReplicaExit:
        assert read_exit(f"AlgorithmError: {with_exit_word(code, 'x' * 2_000)}"[:1_024]) is code
    for foreign in ("", "AlgorithmError: , exit code: 2", "AlgorithmError: [", "[fenced] Attempt 1"):
        assert read_exit(foreign) is None, foreign


def test_a_killed_process_is_explained_and_any_other_reason_is_sagemakers() -> None:
    for text in ("", "x" * 1_000):
        reason = explained(JobEnd(F, "Failed", f"AlgorithmError: {text}"[:1_000] + ", exit code: 137"))
        assert "out of memory" in reason[-130:]
        assert len(reason) <= 1_024
    for reason in ("AlgorithmError: , exit code: 1", "AlgorithmError: exit code: 137 was seen", ""):
        assert explained(JobEnd(F, "Failed", reason)) == reason
        assert explained(JobEnd(S, "Stopped", f"{reason}, exit code: 137")).endswith("137")
