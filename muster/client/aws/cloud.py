"""Everything that the client asks of AWS, by service, for one stack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar, cast

from botocore.config import Config

from muster.client.aws.bucket_objects import BucketObjects
from muster.client.aws.connection import CONFIG, Connection
from muster.client.aws.dead_letter_queue import DeadLetterQueue
from muster.client.aws.deployed_stack import Stack
from muster.client.aws.training_jobs import TrainingJobs
from muster.client.aws.workflow_executions import WorkflowExecutions

if TYPE_CHECKING:
    from muster.client.aws.light_session import AnySession

P = TypeVar("P")


class Cloud:
    """One stack in one account and region, reached with one session's credentials. Nothing is called before first use.

    Every call raises a `muster.client.client_errors.ClientError` when AWS cannot be reached or refuses it.
    """

    def __init__(
        self,
        stack: str | None,
        session: AnySession,
        config: Config = CONFIG,
        clients: Mapping[str, object] | None = None,
    ) -> None:
        """`clients`: those of boto3 that are used instead of new ones, by the services' names."""
        self.session = session
        self.connection = connection = Connection(stack, session, config, clients)
        self.executions = WorkflowExecutions(connection)
        self.jobs = TrainingJobs(connection)
        self.objects = BucketObjects(connection)
        self.dead_letters = DeadLetterQueue(connection)
        self._parts: dict[object, object] = {}

    def part(self, kind: Callable[[Cloud], P]) -> P:
        """What few commands, or an option, ask of AWS, made with this cloud; always the same object."""
        if kind not in self._parts:
            self._parts[kind] = kind(self)
        return cast("P", self._parts[kind])

    @property
    def stack(self) -> Stack:
        """The stack, read from its CloudFormation outputs once."""
        return self.connection.stack
