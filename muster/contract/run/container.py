"""What a container is told and tells outside of documents. Free of dependencies: it is read before any is installed."""

from __future__ import annotations

# Where SageMaker's tree lies; set by its own toolkit and by the embedded cloud, /opt/ml otherwise.
ENV_BASE_DIR = "SAGEMAKER_BASE_DIR"
DEFAULT_BASE_DIR = "/opt/ml"
FAILURE_CHARACTERS = 1024  # DescribeTrainingJob: FailureReason has at most 1,024 characters


def failure_text(reason: str) -> str:
    """What is left in output/failure, which SageMaker reads as FailureReason: one line, cut to what it shows."""
    return " ".join(reason.split())[:FAILURE_CHARACTERS]
