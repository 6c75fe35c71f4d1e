"""Every call that the client makes to AWS, with AWS's errors in our terms."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.exceptions import ClientError as AwsError

from muster.client.aws.deployed_stack import Stack
from muster.client.aws.error_translation import error_code, translated
from muster.client.aws.rate_limiter import Pace
from muster.client.aws.reported import Execution, ExecutionStatus, ExecutionSummary, Job, JobDetail
from muster.client.errors import StackNotFoundError, UnknownRunError, UnreachableError
from muster.client.launch.source_archive import PackedSource
from muster.client.logs.log_lines import LogEvent
from muster.contract import names
from muster.contract.aws.job_status import JobStatus
from muster.contract.errors import RunNameTakenError
from muster.contract.layout import s3_uri
from muster.contract.run.orphans import ActiveJob
from muster.contract.run.source_delivery import REFRESH_DAYS

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sagemaker import SageMakerClient
    from mypy_boto3_stepfunctions import SFNClient
    from mypy_boto3_stepfunctions.literals import ExecutionStatusType
    from mypy_boto3_stepfunctions.type_defs import DescribeExecutionOutputTypeDef

_PAGE = 100  # ListTrainingJobs: MaxResults
_CONFIG = Config(
    connect_timeout=5,
    read_timeout=30,
    retries={"mode": "standard", "total_max_attempts": 3},
    user_agent_extra="muster",
)
# FilterLogEvents: 5 calls per second in an account and region.
_LOG_CALLS_PER_SECOND = 5.0
# Others call it, too. Who follows can wait, and must not lose its place.
_PATIENT = _CONFIG.merge(Config(retries={"mode": "standard", "total_max_attempts": 8}))


class _Condition(TypedDict, total=False):
    IfNoneMatch: str
    IfMatch: str


class _Status(TypedDict, total=False):
    statusFilter: ExecutionStatusType


class _Window(TypedDict, total=False):
    startTime: int
    endTime: int


class _Place(TypedDict, total=False):
    nextToken: str


class _Stored(NamedTuple):
    etag: str
    at: datetime


def open_session(profile: str | None, region: str | None) -> boto3.Session:
    """Credentials and region as the AWS CLI chooses them where they are left out.

    Raises:
        CredentialsError: there is no such profile.
    """
    with translated():
        # boto3 itself knows AWS_DEFAULT_REGION alone.
        return boto3.Session(profile_name=profile, region_name=region or os.environ.get("AWS_REGION") or None)


class Cloud:
    """One stack in one account and region, reached with one session's credentials.

    Every method raises a `muster.client.errors.ClientError` when the cloud cannot be reached or refuses.
    """

    def __init__(self, stack: str, session: boto3.Session, config: Config = _CONFIG) -> None:
        self._stack_name = stack
        self._config = config
        self.session = session
        self._log_pace = Pace(_LOG_CALLS_PER_SECOND)

    @cached_property
    def stack(self) -> Stack:
        """The stack, by its outputs."""
        with translated():
            try:
                answer = self._cloudformation.describe_stacks(StackName=self._stack_name)
            except AwsError as error:
                # DescribeStacks has this one code for a stack that is not there.
                if error_code(error) != "ValidationError":
                    raise
                region = self._cloudformation.meta.region_name
                raise StackNotFoundError(self._stack_name, region) from error
        outputs = {item["OutputKey"]: item["OutputValue"] for item in answer["Stacks"][0].get("Outputs", [])}
        return Stack.from_outputs(self._stack_name, outputs)

    def start_execution(self, execution: str, document: str) -> None:
        """StartExecution. The same name with the same input while it runs is the same run: nothing happens.

        Raises:
            RunNameTakenError: the name belongs to another run.
        """
        with translated():
            try:
                self._stepfunctions.start_execution(
                    stateMachineArn=self.stack.state_machine_arn, name=execution, input=document
                )
            except AwsError as error:
                if error_code(error) != "ExecutionAlreadyExists":
                    raise
                raise RunNameTakenError(execution, self.stack.execution_arn(execution)) from error

    def describe_execution(self, execution: str) -> Execution:
        """DescribeExecution.

        Raises:
            UnknownRunError: there is none of that name.
        """
        return Execution.from_description(self._description(execution))

    def _description(self, execution: str) -> DescribeExecutionOutputTypeDef:
        with translated():
            try:
                return self._stepfunctions.describe_execution(executionArn=self.stack.execution_arn(execution))
            except AwsError as error:
                if error_code(error) not in {"ExecutionDoesNotExist", "InvalidArn"}:
                    raise
                raise UnknownRunError(execution, self.stack.name) from error

    def execution_input(self, execution: str) -> str:
        """What the execution was started with.

        Raises:
            UnknownRunError: there is none of that name.
        """
        return self._description(execution).get("input", "")

    def executions(self, status: ExecutionStatus | None) -> Iterator[ExecutionSummary]:
        """The executions of the stack, the newest first; 100 to a call, which is made when it is needed."""
        condition: _Status = {} if status is None else {"statusFilter": status.value}
        with translated():
            pages = self._stepfunctions.get_paginator("list_executions").paginate(
                stateMachineArn=self.stack.state_machine_arn, PaginationConfig={"PageSize": _PAGE}, **condition
            )
            for page in pages:
                yield from map(ExecutionSummary.from_item, page["executions"])

    def log_pages(self, stream_prefix: str, since_ms: int | None, until_ms: int | None) -> Iterator[list[LogEvent]]:
        """The events of the streams that begin with `stream_prefix`, in time order; at most 10,000 to a call."""
        window: _Window = {}
        if since_ms is not None:
            window["startTime"] = since_ms
        if until_ms is not None:
            window["endTime"] = until_ms
        with translated():
            place: _Place = {}
            try:
                while True:
                    self._log_pace.wait()
                    page = self._logs.filter_log_events(
                        logGroupName=names.TRAINING_LOG_GROUP, logStreamNamePrefix=stream_prefix, **window, **place
                    )
                    yield [
                        LogEvent(item["eventId"], item["timestamp"], item["logStreamName"], item["message"])
                        for item in page["events"]
                    ]
                    if "nextToken" not in page:
                        return
                    place = {"nextToken": page["nextToken"]}
            except AwsError as error:
                # SageMaker makes the group with the first job of an account.
                if error_code(error) != "ResourceNotFoundException":
                    raise

    def stop_execution(self, execution: str, cause: str) -> None:
        """StopExecution. An execution that has ended stays as it is.

        Raises:
            UnknownRunError: there is none of that name.
        """
        with translated():
            try:
                self._stepfunctions.stop_execution(
                    executionArn=self.stack.execution_arn(execution), error="Muster.Cancelled", cause=cause
                )
            except AwsError as error:
                # What has ended is refused as invalid, not by a code of its own.
                if error_code(error) == "ValidationException" and self.describe_execution(execution).ended_at:
                    return
                if error_code(error) not in {"ExecutionDoesNotExist", "InvalidArn"}:
                    raise
                raise UnknownRunError(execution, self.stack.name) from error

    def jobs(self, run: str) -> list[Job]:
        """Every training job of `run`, in no order; 100 to a call."""
        with translated():
            pages = self._sagemaker.get_paginator("list_training_jobs").paginate(
                NameContains=names.run_job_prefix(self.stack.job_prefix, run), PaginationConfig={"PageSize": _PAGE}
            )
            summaries = [summary for page in pages for summary in page["TrainingJobSummaries"]]
        jobs = (Job.from_summary(summary, self.stack.job_prefix, run) for summary in summaries)
        return [job for job in jobs if job is not None]

    def active_jobs(self) -> list[ActiveJob]:
        """The running jobs under any name that this stack makes, whoever made them."""
        with translated():
            pages = self._sagemaker.get_paginator("list_training_jobs").paginate(
                NameContains=f"{self.stack.job_prefix}-",
                StatusEquals=JobStatus.IN_PROGRESS.value,
                PaginationConfig={"PageSize": _PAGE},
            )
            summaries = [summary for page in pages for summary in page["TrainingJobSummaries"]]
        named = ((names.JobName.parse(item["TrainingJobName"], self.stack.job_prefix), item) for item in summaries)
        return [
            ActiveJob(name, item["TrainingJobArn"], item["CreationTime"]) for name, item in named if name is not None
        ]

    def tags(self, arn: str) -> dict[str, str]:
        """The tags of a job."""
        with translated():
            pages = self._sagemaker.get_paginator("list_tags").paginate(ResourceArn=arn)
            return {tag["Key"]: tag["Value"] for page in pages for tag in page["Tags"]}

    def live_runs(self) -> set[str]:
        """The names of the runs whose executions run."""
        with translated():
            pages = self._stepfunctions.get_paginator("list_executions").paginate(
                stateMachineArn=self.stack.state_machine_arn, statusFilter="RUNNING"
            )
            return {names.run_name(item["name"]) for page in pages for item in page["executions"]}

    def describe_job(self, job: str) -> JobDetail:
        """DescribeTrainingJob."""
        with translated():
            return JobDetail.from_description(self._sagemaker.describe_training_job(TrainingJobName=job))

    def keys_after(self, prefix: str, start_after: str) -> Iterator[str]:
        """The keys under `prefix` that sort after `start_after`, in order; 1,000 to a call."""
        return (key for key, _ in self.objects_after(prefix, start_after))

    def objects_after(self, prefix: str, start_after: str) -> Iterator[tuple[str, datetime]]:
        """The same, each with the moment at which it was written."""
        with translated():
            pages = self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=self.stack.bucket, Prefix=prefix, StartAfter=start_after
            )
            for page in pages:
                for item in page.get("Contents", []):
                    yield item["Key"], item["LastModified"]

    def read(self, key: str) -> bytes | None:
        """The object at `key`, or None when there is none."""
        with translated():
            try:
                return self._s3.get_object(Bucket=self.stack.bucket, Key=key)["Body"].read()
            except AwsError as error:
                if error_code(error) != "NoSuchKey":
                    raise
                return None

    def find(self, key: str) -> str | None:
        """The URI of the object at `key`, or None when there is none."""
        with translated():
            return None if self._stored(key) is None else s3_uri(self.stack.bucket, key)

    def modified_at(self, key: str) -> datetime | None:
        """When the object at `key` was written, or None when there is none."""
        with translated():
            stored = self._stored(key)
        return None if stored is None else stored.at

    def store_source(self, source: PackedSource) -> str:
        """See an archive of source code stored; its URI. One that is there and young enough is not sent again."""
        key, bucket = source.key, self.stack.bucket
        with translated():
            stored = self._stored(key)
            if stored is None or datetime.now(UTC) - stored.at > timedelta(days=REFRESH_DAYS):
                # The bucket refuses to overwrite it unseen.
                condition: _Condition = {"IfNoneMatch": "*"} if stored is None else {"IfMatch": stored.etag}
                try:
                    self._s3.put_object(Bucket=bucket, Key=key, Body=source.compressed(), **condition)
                except AwsError as error:
                    # Somebody else has just stored the same source.
                    if error_code(error) not in {"PreconditionFailed", "ConditionalRequestConflict"}:
                        raise
        return s3_uri(bucket, key)

    def _stored(self, key: str) -> _Stored | None:
        try:
            found = self._s3.head_object(Bucket=self.stack.bucket, Key=key)
        except AwsError as error:
            if error_code(error) != "404":
                raise
            return None
        return _Stored(found["ETag"], found["LastModified"])

    @cached_property
    def _cloudformation(self) -> CloudFormationClient:
        with _creation():
            return self.session.client("cloudformation", config=self._config)

    @cached_property
    def _stepfunctions(self) -> SFNClient:
        with _creation():
            return self.session.client("stepfunctions", config=self._config)

    @cached_property
    def _sagemaker(self) -> SageMakerClient:
        with _creation():
            return self.session.client("sagemaker", config=self._config)

    @cached_property
    def _s3(self) -> S3Client:
        with _creation():
            return self.session.client("s3", config=self._config)

    @cached_property
    def _logs(self) -> CloudWatchLogsClient:
        with _creation():
            return self.session.client("logs", config=_PATIENT)


# A session must not make two clients at once; what they are used for afterwards may go on in many threads.
_one_by_one = threading.Lock()


@contextmanager
def _creation() -> Iterator[None]:
    """A client is made on first use, because making one costs more CPU time than most calls."""
    with _one_by_one, translated():
        try:
            yield
        except ValueError as error:
            if isinstance(error, BotoCoreError):
                raise
            # How botocore reports a malformed AWS_ENDPOINT_URL.
            raise UnreachableError(str(error)) from error
