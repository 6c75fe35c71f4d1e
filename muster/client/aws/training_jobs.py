"""Calls to SageMaker: the training jobs of the stack's runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.client.aws.connection import Connection
from muster.client.aws.error_translation import translated
from muster.client.aws.reported import Job
from muster.contract import names
from muster.contract.aws.job_status import JobStatus
from muster.contract.run.orphans import ActiveJob

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.type_defs import DescribeTrainingJobResponseTypeDef

_PAGE = 100  # ListTrainingJobs: MaxResults


class TrainingJobs:
    """The training jobs under the names that the stack makes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def of_run(self, run: str) -> list[Job]:
        """Every training job of `run`, in no order; 100 to a call."""
        prefix = self._connection.stack.job_prefix
        with translated():
            pages = self._connection.sagemaker.get_paginator("list_training_jobs").paginate(
                NameContains=names.run_job_prefix(prefix, run), PaginationConfig={"PageSize": _PAGE}
            )
            summaries = [summary for page in pages for summary in page["TrainingJobSummaries"]]
        jobs = (Job.from_summary(summary, prefix, run) for summary in summaries)
        return [job for job in jobs if job is not None]

    def active(self) -> list[ActiveJob]:
        """The running jobs under any name that this stack makes, including jobs that Muster did not create."""
        prefix = self._connection.stack.job_prefix
        with translated():
            pages = self._connection.sagemaker.get_paginator("list_training_jobs").paginate(
                NameContains=f"{prefix}-",
                StatusEquals=JobStatus.IN_PROGRESS.value,
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

    def describe(self, job: str) -> DescribeTrainingJobResponseTypeDef:
        """DescribeTrainingJob."""
        with translated():
            return self._connection.sagemaker.describe_training_job(TrainingJobName=job)
