"""Calls to SageMaker, for `muster doctor` alone: what is known of a run is in its roll-up."""

from __future__ import annotations

from muster.client.aws.connection import Connection
from muster.client.aws.error_translation import translated
from muster.contract import names
from muster.contract.aws.job_status import JobStatus
from muster.contract.run.orphans import ActiveJob

_PAGE = 100  # ListTrainingJobs: MaxResults


class TrainingJobs:
    """The training jobs under the names that the stack makes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def active(self, status: JobStatus = JobStatus.IN_PROGRESS) -> list[ActiveJob]:
        """The jobs of this status under any name that this stack makes, also jobs that Muster did not create."""
        prefix = self._connection.stack.job_prefix
        with translated():
            pages = self._connection.sagemaker.get_paginator("list_training_jobs").paginate(
                NameContains=f"{prefix}-",
                StatusEquals=status.value,
                PaginationConfig={"PageSize": _PAGE},
            )
            summaries = [summary for page in pages for summary in page["TrainingJobSummaries"]]
        named = ((names.JobName.parse(item["TrainingJobName"], prefix), item) for item in summaries)
        return [
            ActiveJob(name, item["TrainingJobArn"], item["CreationTime"]) for name, item in named if name is not None
        ]

    def tags(self, arn: str) -> dict[str, str]:
        """The tags of the job with this ARN."""
        with translated():
            pages = self._connection.sagemaker.get_paginator("list_tags").paginate(ResourceArn=arn)
            return {tag["Key"]: tag["Value"] for page in pages for tag in page["Tags"]}
