"""The settings of a function and the parts of the control plane, created once per process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Self

from muster.control.active_run import Runs
from muster.control.aws.bus import Bus
from muster.control.aws.clients import Clients, Service
from muster.control.aws.store import DocumentStore
from muster.control.aws.task_tokens import Tokens
from muster.control.backends import Backends
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.function import after_restore, read_environment
from muster.control.runtime.function_settings import FunctionEnvironment

if TYPE_CHECKING:
    from muster.control.continuation_start import ContinuationStart
    from muster.control.stored_run_queue import RunQueue


class ControlPlane:
    """The control plane of one function. Each part is created when it is first used."""

    def __init__(self, settings: FunctionEnvironment, clients: Clients) -> None:
        self.settings = settings
        self.clients = clients

    @classmethod
    def from_environment(
        cls,
        *services: Service,
        environment: Mapping[str, str] = os.environ,
        settings: FunctionEnvironment | None = None,
    ) -> Self:
        """The control plane of a function that calls `services`. Their clients are created now, before the first event.

        `settings`: what the function has read of its environment already, where it has variables of its own.

        Raises:
            ConfigurationError: names every variable of the environment that is missing or wrong, at once.
        """
        settings = settings or read_environment(FunctionEnvironment, environment)
        clients = Clients.opened(*services)
        after_restore(clients.drop_connections)
        return cls(settings, clients)

    def allow(self, budget: TimeBudget) -> TimeBudget:
        """Give an invocation its time: until then throttled calls for jobs are tried again. Returns the budget."""
        self.backends.patience = budget
        return budget

    @cached_property
    def store(self) -> DocumentStore:
        """The stack's bucket."""
        return DocumentStore(self.clients.s3, self.settings.bucket)

    @cached_property
    def backends(self) -> Backends:
        """All services that run jobs of replicas."""
        return Backends(self.clients, self.settings)

    @cached_property
    def runs(self) -> Runs:
        """The runs of the stack."""
        return Runs(self.store, self.backends)

    @cached_property
    def tokens(self) -> Tokens:
        """The task tokens of waiting workflows."""
        return Tokens(self.clients.stepfunctions)

    @cached_property
    def bus(self) -> Bus:
        """The stack's event bus."""
        return Bus(self.clients.events, self.settings.bus)

    @cached_property
    def queue(self) -> RunQueue | None:
        """The run queue; None in a stack without a cap on its replicas."""
        cap = self.settings.max_concurrent_replicas
        if cap is None:
            return None
        from muster.control.stored_run_queue import RunQueue  # noqa: PLC0415 - not without a cap

        return RunQueue(self.store, self.tokens, cap)

    @cached_property
    def continuation_start(self) -> ContinuationStart:
        """Starts the continuations of failed runs."""
        from muster.control.continuation_start import ContinuationStart  # noqa: PLC0415 - only a settlement uses it

        return ContinuationStart(self.clients.stepfunctions, self.bus)
