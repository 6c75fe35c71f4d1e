"""The services that run the jobs of replicas, and which of them a replica uses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

from muster.contract.backend import Backend
from muster.contract.errors import ConfigurationError
from muster.contract.run.orphans import ActiveJob
from muster.contract.run.plan import Plan
from muster.contract.run.where import Where
from muster.contract.spec.places import HOME
from muster.contract.spec.rank_spec import parts_of
from muster.contract.spec.spec import Spec
from muster.control.aws.sagemaker_jobs import TrainingJobs, last_lines
from muster.control.jobs import HasPatience, Jobs, Patient
from muster.control.runtime.clock import TimeBudget

if TYPE_CHECKING:
    from muster.control.aws.clients import Clients
    from muster.control.placement import Placement
    from muster.control.runtime.function_settings import FunctionEnvironment


class PlacedJob(NamedTuple):
    """An active job, and the service that runs it."""

    jobs: Jobs
    job: ActiveJob


class JobService(Protocol):
    """A service beside SageMaker's training jobs that runs jobs of replicas, for one function of one stack."""

    patience: TimeBudget
    """How long throttled calls are tried again."""

    clearing: str
    """What `clear_up` does, in words."""

    def of(self, spec: Spec) -> Jobs:
        """The jobs in the place that the planned `spec` of a rank names, always as the same object."""

    def every(self) -> Collection[Jobs]:
        """Those in all places of the stack."""

    def prepare(self, plan: Plan, role_arn: str | None) -> None:
        """Let the jobs of a run be created, before its plan is written; `role_arn`: the stack's role for them.

        Raises:
            SpecError: a place cannot be used.
        """

    def clear_up(self, plan: Plan, budget: TimeBudget) -> None:
        """Take back what `prepare` has made, once no job of the run is left."""

    def sweep(
        self, job_prefix: str, live_runs: Callable[[], Collection[str]], young_seconds: float, errors: list[str]
    ) -> None:
        """Take back what is left of runs that are not among `live_runs`, unless it is young."""


@dataclass(frozen=True)
class ServiceOffer:
    """A backend of an option (the seam `control.backend`). Opening it is cheap: it imports what a call needs."""

    backend: Backend
    open: Callable[[Clients, FunctionEnvironment], JobService]


def other_backends(spec: Spec) -> set[Backend]:
    """The backends beside SageMaker's training jobs that ranks of `spec` use."""
    return {part.spec.backend for part in parts_of(spec)} - {Backend.TRAINING_JOB}


class Backends(Patient):
    """All services of a stack: the training jobs of its account and region, and those that options offer."""

    def __init__(self, clients: Clients, settings: FunctionEnvironment) -> None:
        self._clients = clients
        self._settings = settings

    @cached_property
    def training(self) -> TrainingJobs:
        """The training jobs."""
        return TrainingJobs(self._clients.sagemaker)

    @cached_property
    def services(self) -> Mapping[Backend, JobService]:
        """The other services."""
        # Most runs have training jobs alone.
        from muster.options import offers  # noqa: PLC0415

        found = {
            one.backend: one.open(self._clients, self._settings) for one in offers("control.backend", ServiceOffer)
        }
        for service in found.values():
            service.patience = self._patience
        return found

    @cached_property
    def placement(self) -> Placement:
        """The places beside home.

        Raises:
            ConfigurationError: this installation of Muster lacks them.
        """
        from muster.control.placement import opened_placement  # noqa: PLC0415 - most runs are at home

        found = opened_placement(self._clients, self._settings)
        found.patience = self._patience
        return found

    def service(self, backend: Backend) -> JobService:
        """The service of a backend that is not SageMaker's training jobs.

        Raises:
            ConfigurationError: this installation of Muster lacks it.
        """
        found = self.services.get(backend)
        if found is None:
            message = f"This installation of Muster has no backend {backend}: deploy the stack with one that has it."
            raise ConfigurationError(message)
        return found

    def _patients(self) -> list[HasPatience]:
        opened = vars(self)
        placement = [self.placement] if "placement" in opened else []
        return [self.training, *placement, *opened.get("services", {}).values()]

    def of(self, spec: Spec, where: Where | None = None) -> Jobs:
        """The service that runs the jobs of a replica; `spec` is that of its rank, as it was planned.

        `where` an attempt runs, if it is not at home.
        """
        if where is not None and where.place != HOME:
            return self.placement.jobs(where.place)
        return self.training if spec.backend is Backend.TRAINING_JOB else self.service(spec.backend).of(spec)

    def of_rank(self, plan: Plan, rank: int) -> Jobs:
        """The service that runs the jobs of replica `rank`."""
        # A run has up to 10,000 replicas, and nearly all have one backend.
        return self.of(plan.spec.of_rank(rank) if plan.spec.overrides else plan.spec)

    def used_by(self, plan: Plan) -> list[Jobs]:
        """The services that the replicas of a run use, each once."""
        places = plan.spec.places
        if places is not None:
            return [self.training, *(self.placement.jobs(name) for name in places.named if name != HOME)]
        if not plan.spec.overrides:
            return [self.of(plan.spec)]
        used = (self.of_rank(plan, rank) for rank in range(plan.spec.replicas))
        return list({id(jobs): jobs for jobs in used}.values())

    def beside_training(self, spec: Spec) -> list[JobService]:
        """The services other than SageMaker's training jobs that ranks of `spec` use."""
        return [self.service(backend) for backend in sorted(other_backends(spec))]

    def last_lines(self, job: str, count: int, where: Where | None = None) -> list[str]:
        """The last `count` lines of the log of a training job that has ended; those of others only the client reads."""
        if where is not None and where.place != HOME:
            return self.placement.last_lines(where.place, job, count)
        return last_lines(self._clients.logs, job, count)

    def every(self) -> list[Jobs]:
        """All services of the stack."""
        places = self.placement.every() if self._settings.places else []
        return [self.training, *places, *(jobs for service in self.services.values() for jobs in service.every())]
