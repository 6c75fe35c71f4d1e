"""Training jobs: launch, look, list, stop. Every call may be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from muster.contract.aws.failures import FailureClass, JobEnd, classify_request_error
from muster.contract.aws.job_status import JobStatus
from muster.contract.names import JobName, run_job_prefix
from muster.contract.run.attempt import Attempt, granted_type
from muster.contract.run.orphans import ActiveJob
from muster.control.aws.aws_errors import error_code, error_message, is_passing
from muster.control.runtime import clock

if TYPE_CHECKING:
    from mypy_boto3_sagemaker import SageMakerClient

# Describe of a missing job answers ValidationException, and so does Stop of one that has ended.
_NO_SUCH_JOB = {"ValidationException", "ResourceNotFound"}
_ENDS = {status.value for status in JobStatus if status.is_terminal}


@dataclass(frozen=True)
class Job:
    """A training job as Describe shows it. The status is text: SageMaker may add to what we know."""

    name: str
    arn: str
    status: str
    secondary: str
    reason: str
    artifacts: str | None
    changed_at: str
    instance_type: str | None
    """None while SageMaker has not chosen among preferences."""
    billable_seconds: int

    @property
    def end(self) -> JobEnd | None:
        """Its end, where it has ended."""
        return JobEnd(JobStatus(self.status), self.secondary, self.reason) if self.status in _ENDS else None

    def applied_to(self, attempt: Attempt, *, stopping: bool) -> Attempt:
        """`attempt` as this job shows it; `stopping`: its run is being stopped."""
        update = {
            "status": self.status,
            "secondary": self.secondary,
            "reason": self.reason,
            "artifacts": self.artifacts,
            "instance_type": self.instance_type or attempt.instance_type,
            "billable_seconds": self.billable_seconds if self.end else None,
        }
        seen = attempt.model_copy(update=update)
        return seen if self.end is None else seen.ended(self.end, self.changed_at, stopping=stopping)


class LaunchRefusedError(Exception):
    """SageMaker refused CreateTrainingJob."""

    def __init__(self, failure_class: FailureClass, reason: str) -> None:
        self.failure_class = failure_class
        self.reason = reason
        super().__init__(reason)


class Jobs:
    """The training jobs of the account, under our names."""

    def __init__(self, sagemaker: SageMakerClient) -> None:
        self._sagemaker = sagemaker

    def create(self, request: dict[str, Any]) -> bool:
        """Send CreateTrainingJob. False when a job of that name exists already (ours or not).

        Raises:
            LaunchRefusedError: the last answer was a refusal. An earlier one may have been lost on its way, so only a
                look tells whether there is a job.
            ClientError: the last answer was a 5xx: nobody knows; or the last of several tries came too fast.
        """
        try:
            self._sagemaker.create_training_job(**request)
        except ClientError as error:
            code = error_code(error)
            if code in {"ResourceInUse", "ResourceInUseException"}:
                return False
            # A throttle says nothing of the attempt: the workflow sends the same one again, with full jitter.
            if is_passing(error):
                raise
            raise LaunchRefusedError(classify_request_error(code), f"{code}: {error_message(error)}") from error
        return True

    def find(self, name: str) -> Job | None:
        """The job of that name, or None."""
        try:
            found = self._sagemaker.describe_training_job(TrainingJobName=name)
        except ClientError as error:
            if error_code(error) in _NO_SUCH_JOB:
                return None
            raise
        return Job(
            name=name,
            arn=found["TrainingJobArn"],
            status=found["TrainingJobStatus"],
            secondary=found["SecondaryStatus"],
            reason=found.get("FailureReason", ""),
            artifacts=found.get("ModelArtifacts", {}).get("S3ModelArtifacts"),
            changed_at=clock.isoformat(found.get("TrainingEndTime") or found["LastModifiedTime"]),
            instance_type=granted_type(found["ResourceConfig"]),
            # Not there before the end, and for a job that never had an instance.
            billable_seconds=found.get("BillableTimeInSeconds", 0),
        )

    def tags(self, arn: str) -> dict[str, str]:
        """The tags of a job."""
        pages = self._sagemaker.get_paginator("list_tags").paginate(ResourceArn=arn)
        return {tag["Key"]: tag["Value"] for page in pages for tag in page["Tags"]}

    def stop(self, name: str) -> None:
        """Stop a job; one that has ended, or was never made, is as good as stopped."""
        try:
            self._sagemaker.stop_training_job(TrainingJobName=name)
        except ClientError as error:
            if error_code(error) not in _NO_SUCH_JOB:
                raise
            job = self.find(name)
            if job is not None and job.status == JobStatus.IN_PROGRESS:
                raise

    def under_names_of(self, prefix: str, run: str, status: JobStatus) -> Iterator[ActiveJob]:
        """The jobs that hold a name of this run and are in `status`, whoever made them."""
        # A name may contain another run's prefix: only its parts tell whose it is.
        for job in self._listed(prefix, run_job_prefix(prefix, run), status):
            if job.name.run == run:
                yield job

    def active(self, prefix: str) -> list[ActiveJob]:
        """The jobs of any run that hold a name under `prefix` and run, whoever made them."""
        return list(self._listed(prefix, f"{prefix}-", JobStatus.IN_PROGRESS))

    def _listed(self, prefix: str, contained: str, status: JobStatus) -> Iterator[ActiveJob]:
        # ListTrainingJobs: at most 100 a page, and 10 by default.
        pages = self._sagemaker.get_paginator("list_training_jobs").paginate(
            NameContains=contained, StatusEquals=status.value, PaginationConfig={"PageSize": 100}
        )
        for page in pages:
            for summary in page["TrainingJobSummaries"]:
                name = JobName.parse(summary["TrainingJobName"], prefix)
                if name is not None:
                    yield ActiveJob(name, summary["TrainingJobArn"], summary["CreationTime"])
