"""Training jobs of SageMaker: create, describe, list, stop, and their logs. Every call is idempotent."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, cast

from botocore.exceptions import ClientError
from pydantic import JsonValue

from muster.contract import timestamps
from muster.contract.aws.failure_classes import classify_request_error
from muster.contract.aws.job_status import JobStatus
from muster.contract.names import CONTAINER, TRAINING_LOG_GROUP, run_job_prefix
from muster.contract.run.attempt import granted_type
from muster.contract.run.job_details import job_details
from muster.contract.run.job_request import training_job_request
from muster.contract.run.orphans import ActiveJob, listing
from muster.control.aws.aws_errors import error_code, error_message, is_denied, is_transient, patiently
from muster.control.jobs import Creation, Job, LaunchRefusedError
from muster.control.runtime import clock
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.parallel import OutOfTimeError

if TYPE_CHECKING:
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_sagemaker import SageMakerClient
    from mypy_boto3_sagemaker.type_defs import CreateTrainingJobRequestTypeDef, ListTagsInputTypeDef

    from muster.contract.run.plan import Plan
    from muster.control.documents import Change, Updated

# Describe answers ValidationException for a missing job, and Stop for a job that has ended.
_NO_SUCH_JOB = {"ValidationException", "ResourceNotFound"}
_DELETED = "Deleted"  # no status of SageMaker: it forgets the job
_LAG_SECONDS = 5.0
_PAGE = 100  # ListTrainingJobs: MaxResults, 10 by default
_STREAMS_LISTED = 50  # DescribeLogStreams: the most in one answer
_STREAMS_READ = 4  # of a job of many instances: those that have written last

# How a service names a value that it refuses, which may be a whole map: Value '{A=b}' at 'environment' failed to …
_REFUSED_VALUE = re.compile(
    r"(?i:value) '(?:(?!' at ').)*' at '"
    r"(?P<member>[^']*(?:environment|hyperParameters|containerArguments|containerEntrypoint|Parameters)[^']*)'",
    re.DOTALL,
)


def _without_private_values(message: str) -> str:
    """SageMaker's message without the values of members that may hold secrets: it goes into the result of the run."""
    return _REFUSED_VALUE.sub(r"The value (not shown) at '\g<member>'", message)


class TrainingJobs:
    """The training jobs of the account."""

    noun = "training job"
    place = "SageMaker"

    def __init__(self, sagemaker: SageMakerClient) -> None:
        self._opened = sagemaker
        self.patience = TimeBudget(-math.inf)
        """How long a throttled call is tried again, except `create`: the workflow waits for that at a lower cost."""

    @property
    def _sagemaker(self) -> SageMakerClient:
        return self._opened

    def request(self, plan: Plan, rank: int, attempt: int, shortages: int) -> dict[str, JsonValue]:
        """The CreateTrainingJob request of an attempt."""
        return training_job_request(plan, rank, attempt, shortages)

    def create(self, request: dict[str, JsonValue]) -> Creation:
        """Send CreateTrainingJob. Not new where a job of that name exists already (Muster's or not).

        Raises:
            LaunchRefusedError: the last response was a refusal. An earlier response may have been lost, so only
                `find` shows whether the job exists.
            ClientError: the last response was a 5xx, so the job may exist or not; or the last try was throttled.
        """
        try:
            self._sagemaker.create_training_job(**cast("CreateTrainingJobRequestTypeDef", request))
        except ClientError as error:
            code = error_code(error)
            if code in {"ResourceInUse", "ResourceInUseException"}:
                return Creation(is_new=False)
            # A throttled call says nothing about the attempt: the workflow tries it again, with full jitter.
            if is_transient(error):
                raise
            # Not `from error`: its text holds the message as it came.
            reason = f"{code}: {_without_private_values(error_message(error))}"
            raise LaunchRefusedError(classify_request_error(code), reason, denied=is_denied(error)) from None
        return Creation(is_new=True)

    def find(self, name: str, patience: TimeBudget | None = None) -> Job | None:
        """The job of that name, or None. `patience` replaces that of all calls."""
        budget = self.patience if patience is None else patience
        try:
            found = patiently(lambda: self._sagemaker.describe_training_job(TrainingJobName=name), budget)
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
            changed_at=timestamps.text(found.get("TrainingEndTime") or found["LastModifiedTime"]),
            instance_type=granted_type(found["ResourceConfig"]),
            # Missing before the end, and for a job that never had an instance.
            billable_seconds=found.get("BillableTimeInSeconds", 0),
            details=job_details(cast("Mapping[str, object]", found)),
        )

    def explained(self, job: Job) -> Job:
        """The job as it is: SageMaker says why it has failed."""
        return job

    def note(self, update: Callable[[Change], Updated], job: Job | None) -> None:
        """Nothing: SageMaker's events carry the history of its jobs."""

    def vanished(self, name: str) -> Job | None:
        """What it means that a job is not there whose attempt was seen to have one: it had ended, and was deleted.

        DeleteTrainingJob deletes jobs that have ended, and their names can be given again. A second look, because the
        first may lag behind the job's event.
        """
        clock.sleep(_LAG_SECONDS)
        if self.find(name) is not None:
            return None
        return Job(
            name=name,
            arn="",
            status=JobStatus.FAILED.value,
            secondary=_DELETED,
            reason="The training job was deleted after it had ended; how it ended is not known.",
            artifacts=None,
            changed_at=clock.now(),
            instance_type=None,
            billable_seconds=None,
            is_gone=True,
        )

    def tags(self, arn: str) -> dict[str, str]:
        """The tags of a job."""
        request: ListTagsInputTypeDef = {"ResourceArn": arn}
        found: dict[str, str] = {}
        while True:
            # No paginator: it would make its calls past the guard of a place's client.
            page = patiently(lambda: self._sagemaker.list_tags(**request), self.patience)
            found |= {tag["Key"]: tag["Value"] for tag in page["Tags"]}
            if "NextToken" not in page:
                return found
            request["NextToken"] = page["NextToken"]

    def stop(self, name: str) -> None:
        """Stop a job. Nothing happens where it has ended or does not exist."""
        try:
            patiently(lambda: self._sagemaker.stop_training_job(TrainingJobName=name), self.patience)
        except ClientError as error:
            if error_code(error) not in _NO_SUCH_JOB:
                raise
            job = self.find(name)
            if job is not None and job.status == JobStatus.IN_PROGRESS:
                raise

    def under_names_of(self, prefix: str, run: str) -> Iterator[ActiveJob]:
        """The jobs whose names are those of this run, including jobs that Muster did not create."""
        # A name can contain the prefix of another run, so the parsed parts are compared.
        for job in self._listed(prefix, run_job_prefix(prefix, run)):
            if job.name.run == run:
                yield job

    def active(self, prefix: str, budget: TimeBudget) -> Iterator[ActiveJob]:
        """The jobs with names under `prefix`, of any run, including jobs that Muster did not create.

        Raises:
            OutOfTimeError: after the newest ones, for which the budget sufficed.
        """
        return self._listed(prefix, f"{prefix}-", budget)

    def _listed(self, prefix: str, contained: str, budget: TimeBudget | None = None) -> Iterator[ActiveJob]:
        request = {**listing(contained, clock.utc_now()), "MaxResults": _PAGE}
        while True:
            # Each page by itself: a throttled one must not repeat those before it.
            page = patiently(lambda: self._sagemaker.list_training_jobs(**request), self.patience)
            found = (ActiveJob.of(summary, prefix) for summary in page["TrainingJobSummaries"])
            yield from (job for job in found if job is not None)
            if "NextToken" not in page:
                return
            if budget is not None and budget.is_spent:
                message = "the time was spent before all jobs were listed"
                raise OutOfTimeError(message)
            request["NextToken"] = page["NextToken"]


def last_lines(logs: CloudWatchLogsClient, job: str, count: int) -> list[str]:
    """The last `count` log events of a job, oldest first; of many instances those of the ones that wrote last.

    Its log streams are named `{job}/algo-1-1700000000`, one for each container.

    Raises:
        ClientError, BotoCoreError: the log cannot be read.
    """
    listed = logs.describe_log_streams(
        logGroupName=TRAINING_LOG_GROUP, logStreamNamePrefix=f"{job}/{CONTAINER}", limit=_STREAMS_LISTED
    )["logStreams"]
    newest = sorted(listed, key=lambda stream: stream.get("lastEventTimestamp", 0))[-_STREAMS_READ:]
    found: list[tuple[int, str]] = []
    for stream in newest:
        page = logs.get_log_events(
            logGroupName=TRAINING_LOG_GROUP, logStreamName=stream["logStreamName"], limit=count, startFromHead=False
        )
        found += [(event["timestamp"], event["message"]) for event in page["events"]]
    found.sort(key=lambda event: event[0])
    return [message for _, message in found[-count:]]
