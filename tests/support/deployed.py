"""The stack as tests see it: start runs, read their jobs and documents, wait for expected states."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from muster.contract.layout import RunLayout
from muster.contract.names import JobName
from muster.contract.run.record import Record
from muster.contract.run.result import Result
from muster.local.local_cloud import LocalCloud
from tests.support.waiting import SECONDS, wait_until

_GATED = Path(__file__).parent / "jobs" / "gated.py"
_names = itertools.count(1)


class Deployed:
    """The deployed stack in its cloud."""

    def __init__(self, cloud: LocalCloud, outputs: Mapping[str, str], gates: Path) -> None:
        self.cloud = cloud
        self.machine = outputs["StateMachineArn"]
        self.bucket = outputs["BucketName"]
        self.prefix = outputs["JobPrefix"]
        self.outputs = outputs
        self.gates = gates
        gates.mkdir(parents=True, exist_ok=True)
        self.s3 = cloud.client("s3")
        self.sagemaker = cloud.client("sagemaker")
        self.stepfunctions = cloud.client("stepfunctions")
        self.functions = cloud.client("lambda")
        self.letters = Letters(cloud.client("sqs"), outputs["DeadLetterQueueUrl"])

    def start(self, spec: Any, name: str | None = None) -> Run:
        """Start a run; `spec` is the execution's input as it stands."""
        name = name or f"t{next(_names)}"
        answer = self.stepfunctions.start_execution(stateMachineArn=self.machine, name=name, input=json.dumps(spec))
        return Run(self, name, answer["executionArn"])

    def run(self, name: str) -> Run:
        """A run that was started elsewhere."""
        return Run(self, name, f"{self.machine.replace(':stateMachine:', ':execution:', 1)}:{name}")

    def gated(self, name: str, **fields: Any) -> dict[str, Any]:
        """A spec whose jobs run until `open_gate(name)`."""
        return {"replicas": 1, "entrypoint": ["python", str(_GATED), str(self.gates / name)], **fields}

    def open_gate(self, name: str) -> None:
        """Let the jobs behind this gate end."""
        (self.gates / name).touch()

    def invoke(self, function: str, event: Any) -> Any:
        """Call a function (`Plan`, `Attempt`, `React`, `Settle`, `Stop`) directly; its answer or its error."""
        answer = self.functions.invoke(FunctionName=self.function_name(function), Payload=json.dumps(event).encode())
        return json.loads(answer["Payload"].read())

    def function_name(self, function: str) -> str:
        """The physical name of a function."""
        pages = self.functions.get_paginator("list_functions").paginate()
        names = [item["FunctionName"] for page in pages for item in page["Functions"]]
        return next(name for name in names if f"-{function}" in name)

    def calls(self, operation: str) -> int:
        """How often an operation was called since the test began."""
        return sum(call.count for call in self.cloud.calls.report() if call.operation == operation)

    def stop_everything(self) -> None:
        """Abort all running executions, and wait until no job is left."""
        for page in self.stepfunctions.get_paginator("list_executions").paginate(
            stateMachineArn=self.machine, statusFilter="RUNNING"
        ):
            for execution in page["executions"]:
                # An execution that has ended meanwhile cannot be stopped. That all jobs have ended is checked below.
                with suppress(ClientError):
                    self.stepfunctions.stop_execution(executionArn=execution["executionArn"])
        for job in self.cloud.running_jobs():
            with suppress(ClientError):
                self.sagemaker.stop_training_job(TrainingJobName=job)
        wait_until("the end of every job", lambda: not self.cloud.running_jobs())


@dataclass(frozen=True)
class Letters:
    """The stack's dead-letter queue."""

    sqs: Any
    url: str

    def send(self, body: str) -> str:
        """Put a message into the queue; its ID."""
        return str(self.sqs.send_message(QueueUrl=self.url, MessageBody=body)["MessageId"])

    def about(self, job: str) -> list[str]:
        """The errors of the events about a training job that are among the first ten messages."""
        answer = self.sqs.receive_message(
            QueueUrl=self.url, MaxNumberOfMessages=10, VisibilityTimeout=0, MessageAttributeNames=["ErrorMessage"]
        )
        found = [one for one in answer.get("Messages", []) if job in one["Body"]]
        return [one["MessageAttributes"]["ErrorMessage"]["StringValue"] for one in found]

    def purge(self) -> None:
        """Empty the queue."""
        self.sqs.purge_queue(QueueUrl=self.url)


@dataclass(frozen=True)
class Run:
    """One run of the deployed stack."""

    stack: Deployed
    name: str
    execution_arn: str

    @property
    def layout(self) -> RunLayout:
        return RunLayout(self.name)

    def job(self, rank: int = 0, attempt: int = 1) -> str:
        """The name of an attempt's job."""
        return str(JobName(self.stack.prefix, self.name, rank, attempt))

    def describe(self) -> dict[str, Any]:
        return dict(self.stack.stepfunctions.describe_execution(executionArn=self.execution_arn))

    def wait(self, seconds: float = SECONDS) -> dict[str, Any]:
        """The execution, once it has ended."""
        wait_until(f"the end of {self.name}", lambda: self.describe()["status"] != "RUNNING", seconds=seconds)
        return self.describe()

    def document(self, key: str) -> bytes | None:
        try:
            return bytes(self.stack.s3.get_object(Bucket=self.stack.bucket, Key=key)["Body"].read())
        except self.stack.s3.exceptions.NoSuchKey:
            return None

    def record(self, rank: int = 0) -> Record | None:
        body = self.document(self.layout.record(rank))
        return None if body is None else Record.from_json(body, "record")

    def result(self) -> Result:
        """The settlement, once it is written."""
        body = wait_until(f"the settlement of {self.name}", lambda: self.document(self.layout.result))
        return Result.from_json(body, "result")

    def statuses(self) -> dict[str, str]:
        """The status of each job of this run in SageMaker, by job name without the run's part."""
        pages = self.stack.sagemaker.get_paginator("list_training_jobs").paginate(
            NameContains=f"{self.stack.prefix}-{self.name}-"
        )
        return {
            summary["TrainingJobName"].removeprefix(f"{self.stack.prefix}-{self.name}-"): summary["TrainingJobStatus"]
            for page in pages
            for summary in page["TrainingJobSummaries"]
        }

    def wait_for_status(self, rank: int, attempt: int, *statuses: str) -> None:
        """Wait until an attempt's job has one of these primary or secondary statuses."""

        def look() -> bool:
            try:
                job = self.stack.sagemaker.describe_training_job(TrainingJobName=self.job(rank, attempt))
            except self.stack.sagemaker.exceptions.ClientError:
                return False
            return bool({job["TrainingJobStatus"], job["SecondaryStatus"]} & set(statuses))

        wait_until(f"{self.job(rank, attempt)} as {'/'.join(statuses)}", look)

    def wait_for_training(self, *ranks: int) -> None:
        """Wait until the first attempts of `ranks` train."""
        for rank in ranks:
            self.wait_for_status(rank, 1, "Training")

    def wait_for_record(self, rank: int, secondary: str) -> None:
        """Wait until a replica's record contains a secondary status. React writes it after the job has reached it."""

        def look() -> bool:
            record = self.record(rank)
            return record is not None and record.current.secondary == secondary

        wait_until(f"{secondary} in the record of rank {rank}", look)
