"""Everything that the client asks of AWS, by service, for one stack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
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
    from muster.client.aws.log_events import LogEvents
    from muster.client.aws.recorded_runs import EndedDays, RollUps

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

    # What few commands use is imported when it is used.
    @cached_property
    def roll_ups(self) -> RollUps:
        """What the control plane has written of the replicas of each run."""
        from muster.client.aws.recorded_runs import RollUps  # noqa: PLC0415

        return RollUps(self.objects)

    @cached_property
    def ended_days(self) -> EndedDays:
        """The runs that have ended, by day."""
        from muster.client.aws.recorded_runs import EndedDays  # noqa: PLC0415

        return EndedDays(self.objects)

    @cached_property
    def logs(self) -> LogEvents:
        """The lines in CloudWatch Logs."""
        from muster.client.aws.log_events import LogEvents  # noqa: PLC0415

        return LogEvents(self.connection)

    def part(self, kind: Callable[[Connection], P]) -> P:
        """What an option asks of AWS, made with this connection; always the same object."""
        if kind not in self._parts:
            self._parts[kind] = kind(self.connection)
        return cast("P", self._parts[kind])

    @property
    def stack(self) -> Stack:
        """The stack, read from its CloudFormation outputs once."""
        return self.connection.stack
