"""Calls to SageMaker. What is known of a run is in its roll-up, but for the warm pools that its jobs keep."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from muster.client.aws.connection import Connection
from muster.client.aws.error_translation import translated
from muster.contract.run.orphans import ActiveJob, listing

if TYPE_CHECKING:
    from mypy_boto3_sagemaker import SageMakerClient

_PAGE = 100  # ListTrainingJobs: MaxResults


class TrainingJobs:
    """The training jobs under the names that the stack makes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def active(self) -> list[ActiveJob]:
        """The jobs that have not ended under any name that this stack makes, also jobs that Muster did not create."""
        return list(active_jobs(self._connection.sagemaker, self._connection.stack.job_prefix))

    def stop(self, name: str) -> bool:
        """StopTrainingJob. False where there is no such job, or it has ended: SageMaker refuses both as invalid."""
        with translated("ResourceNotFound", "ValidationException"):
            self._connection.sagemaker.stop_training_job(TrainingJobName=name)
            return True
        return False

    def warm_pools(self, prefix: str) -> dict[str, int | None]:
        """The jobs whose names contain `prefix` that keep a warm pool now, each with the seconds billed for it."""
        found: dict[str, int | None] = {}
        with translated():
            pages = self._connection.sagemaker.get_paginator("list_training_jobs").paginate(
                NameContains=prefix, WarmPoolStatusEquals="Available", PaginationConfig={"PageSize": _PAGE}
            )
            for page in pages:
                for item in page["TrainingJobSummaries"]:
                    pool = item.get("WarmPoolStatus")
                    seconds = None if pool is None else pool.get("ResourceRetainedBillableTimeInSeconds")
                    found[item["TrainingJobName"]] = seconds
        return found

    def tags(self, arn: str) -> dict[str, str]:
        """The tags of the job with this ARN."""
        return job_tags(self._connection.sagemaker, arn)


def active_jobs(client: SageMakerClient, prefix: str) -> Iterator[ActiveJob]:
    """The jobs that have not ended under any name that a stack makes with the job prefix `prefix`."""
    with translated():
        pages = client.get_paginator("list_training_jobs").paginate(
            **listing(f"{prefix}-", datetime.now(UTC)), PaginationConfig={"PageSize": _PAGE}
        )
        found = [ActiveJob.of(summary, prefix) for page in pages for summary in page["TrainingJobSummaries"]]
    yield from (job for job in found if job is not None)


def job_tags(client: SageMakerClient, arn: str) -> dict[str, str]:
    """The tags of the job with this ARN."""
    with translated():
        pages = client.get_paginator("list_tags").paginate(ResourceArn=arn)
        return {tag["Key"]: tag["Value"] for page in pages for tag in page["Tags"]}
