"""The region of the run's bucket, and S3's address there. SageMaker documents no variable that names the region."""

from __future__ import annotations

from collections.abc import Mapping

from muster.contract.aws.partitions import dns_suffix
from muster.contract.run.replica_variables import ENV_REGION

# In every training container: arn:<partition>:sagemaker:<region>:<account>:training-job/<name>.
_JOB_ARN = "TRAINING_JOB_ARN"


def region_of(variables: Mapping[str, str]) -> str | None:
    """The region from a process's variables; None where none names it (outside of SageMaker).

    The request of a run's jobs sets MUSTER_REGION. A job that was not launched by Muster has TRAINING_JOB_ARN.
    """
    parts = variables.get(_JOB_ARN, "").split(":")
    of_job = parts[3] if len(parts) > 5 else ""
    return variables.get(ENV_REGION) or of_job or variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION")


def s3_endpoint(region: str) -> str:
    """S3's address in a region, of any partition."""
    return f"https://s3.{region}.{dns_suffix(region)}"
