"""The places of a stack as the control plane uses them (the seam `control.placement`)."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, cast

from botocore.exceptions import ClientError

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.aws.partitions import Locality
from muster.contract.run.attempt import requested_type
from muster.contract.spec.place_rules import deployment_problems
from muster.control.aws.aws_errors import error_code, error_message, is_denied
from muster.control.aws.sagemaker_jobs import TrainingJobs, last_lines
from muster.control.jobs import HasPatience, LaunchRefusedError, PlaceDeniesError, PlaceSilentError
from muster.control.placement import PlacedReplica, Placement, PlacementOffer
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.function_settings import AttemptEnvironment
from muster.options.places.contract.outposts import ENV_PLACES, PARTITION, DeployedPlaces

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mypy_boto3_sagemaker import SageMakerClient
    from mypy_boto3_sts import STSClient
    from mypy_boto3_sts.type_defs import CredentialsTypeDef
    from pydantic import JsonValue

    from muster.contract.errors import Problem
    from muster.contract.run.attempt import Attempt
    from muster.contract.run.plan import Plan
    from muster.contract.run.where import Where
    from muster.contract.spec.spec import Spec
    from muster.control.aws.clients import Clients
    from muster.control.aws.launcher_sessions import Launcher, Session
    from muster.control.aws.store import DocumentStore
    from muster.control.documents import PlannedRun
    from muster.control.jobs import Jobs
    from muster.control.runtime.function_settings import FunctionEnvironment
    from muster.options.places.contract.outposts import Outpost
    from muster.options.places.control.place_clients import PlaceClients, Silence


class PlaceJobs(TrainingJobs):
    """The training jobs of a place: to look after them. Every call raises PlaceSilentError where that cannot be."""

    def __init__(self, name: str, opened: Callable[[], SageMakerClient]) -> None:
        self.place = name
        self.patience = TimeBudget(-math.inf)
        self._open = opened

    @property
    def _sagemaker(self) -> SageMakerClient:
        # Of a session that has not ended.
        return self._open()


class OpenPlace:
    """One place of the stack: its outpost, and the sessions of its launcher role."""

    def __init__(self, at: Outpost, clients: PlaceClients, settings: FunctionEnvironment) -> None:
        self.at = at
        self._clients = clients
        self._prefix = settings.job_prefix
        # The role lets the function that creates jobs have no session without tags, and the others none with any.
        self._tagged = isinstance(settings, AttemptEnvironment)
        self.jobs = PlaceJobs(at.name, lambda: self.sagemaker)

    @cached_property
    def silence(self) -> Silence:
        """Whether it answers."""
        from muster.options.places.control.place_clients import Silence  # noqa: PLC0415

        return Silence(f"{self.at.name} ({self.at.region})")

    @cached_property
    def launcher(self) -> Launcher:
        """The launcher role of the outpost."""
        from muster.control.aws.launcher_sessions import Launcher  # noqa: PLC0415

        return Launcher(self, self.at.launcher_role_arn, self._prefix, self.at.external_id)

    @property
    def _standing(self) -> Session:
        try:
            return self.launcher.session_of_no_run(tagged=self._tagged)
        except ClientError as error:
            if is_denied(error):
                raise PlaceDeniesError(self.at.name) from error
            raise

    @property
    def sagemaker(self) -> SageMakerClient:
        """SageMaker of the place, to look after its jobs."""
        return self._standing.sagemaker

    @property
    def sts(self) -> STSClient:
        """STS, at home."""
        return self._clients.sts

    def sagemaker_in(self, credentials: CredentialsTypeDef) -> SageMakerClient:
        """SageMaker of the place in a session."""
        client = self._clients.sagemaker(self.at.region, credentials)
        return cast("SageMakerClient", self.silence.guarded(client, lambda _: PlaceDeniesError(self.at.name)))

    def store(self, plan: Plan | None = None) -> DocumentStore:
        """The outpost's bucket: for a session of a run, to put there what its jobs read; otherwise to read outputs.

        The first one's calls raise PlaceSilentError where the place does not answer, and LaunchRefusedError where it
        denies them.
        """
        from muster.control.aws.store import DocumentStore  # noqa: PLC0415

        session = self._standing if plan is None else self.launcher.session_of(plan)
        s3 = self._clients.s3(self.at.region, session.credentials)
        return DocumentStore(s3 if plan is None else self.silence.guarded(s3, self._bucket_refused), self.at.bucket)

    def _bucket_refused(self, error: ClientError) -> LaunchRefusedError:
        reason = f"{error_code(error)}: {error_message(error)} (s3://{self.at.bucket}, where its jobs read)"
        return LaunchRefusedError(FailureClass.INVALID_REQUEST, reason, denied=True)

    def last_lines(self, job: str, count: int) -> list[str]:
        """The last lines of a job's log."""
        return last_lines(self._clients.logs(self.at.region, self._standing.credentials), job, count)


class Outposts(Placement):
    """The places of a function's stack."""

    def __init__(self, clients: Clients, settings: FunctionEnvironment) -> None:
        self._clients = clients
        self._settings = settings
        self._opened: dict[str, OpenPlace] = {}
        self._gone: dict[str, Jobs] = {}

    def _patients(self) -> list[HasPatience]:
        return [one.jobs for one in list(self._opened.values())]

    @cached_property
    def clients(self) -> PlaceClients:
        """What calls the places."""
        from muster.options.places.control.place_clients import PlaceClients  # noqa: PLC0415

        return self._clients.part(PlaceClients)

    def open(self, name: str) -> OpenPlace:
        """A place of the stack, always as the same object.

        Raises:
            PlaceSilentError: the stack does not have it any more.
        """
        found = self._opened.get(name)
        if found is None:
            at = self._outposts.get(name)
            if at is None:
                gone = f"{name}, a place that the stack does not have any more,"
                raise PlaceSilentError(gone, sent=False)
            found = OpenPlace(at, self.clients, self._settings)
            found.jobs.patience = self._patience
            found = self._opened.setdefault(name, found)
        return found

    def jobs(self, place: str) -> Jobs:
        """The jobs of a place."""
        if place in self._outposts:
            return self.open(place).jobs
        return self._gone.setdefault(place, PlaceJobs(place, lambda: self.open(place).sagemaker))

    def every(self) -> list[Jobs]:
        """Those of all places of the stack."""
        return [self.jobs(name) for name in self._outposts]

    def is_of(self, place: str, account: str, region: str) -> bool:
        """Whether an event comes from a place."""
        at = self._outposts.get(place)
        return at is not None and (at.account, at.region) == (account, region)

    def problems(self, spec: Spec, home: Locality) -> list[Problem]:
        """Places that are not deployed, and plans of other regions."""
        deployed = {name: Locality(home.partition, at.region, at.account) for name, at in self._outposts.items()}
        return deployment_problems(spec, deployed, home)

    def choose(self, replica: PlacedReplica, before: Sequence[Attempt]) -> Where:
        """Where the attempt that follows `before` goes."""
        from muster.options.places.control.choice import choose  # noqa: PLC0415

        return choose(replica, before, self._price)

    def closed(self, replica: PlacedReplica, current: Attempt) -> str | None:
        """Why an attempt that is recorded is not launched on its rung."""
        from muster.options.places.control.choice import closed  # noqa: PLC0415

        return closed(replica, current)

    def instance_type(self, replica: PlacedReplica, where: Where, before: Sequence[Attempt]) -> str | None:
        """The type to request there."""
        places = replica.run.plan.spec.places
        if places is None or where.rung is None:
            return requested_type(replica.spec, before)
        return places.ladder[where.rung].instance_type or replica.spec.instance_type

    def request(self, plan: Plan, rank: int, attempts: Sequence[Attempt]) -> dict[str, JsonValue]:
        """The request for the last of `attempts`."""
        from muster.options.places.contract.placed_request import placed_request  # noqa: PLC0415

        where = attempts[-1].where
        return placed_request(
            plan, rank, attempts, None if where is None or where.is_home else self.open(where.place).at
        )

    def launching(self, run: PlannedRun, rank: int, place: str) -> Jobs:
        """The jobs of a place in a session of this run."""
        from muster.options.places.control.delivery import deliver  # noqa: PLC0415

        opened = self.open(place)
        deliver(run, rank, opened.store(run.plan))
        return opened.launcher.jobs(run.plan)

    def gives_up(self, replica: PlacedReplica, current: Attempt) -> str | None:
        """Why an attempt whose place does not answer is given up."""
        from muster.options.places.control.choice import gives_up  # noqa: PLC0415

        return gives_up(replica, current)

    def store(self, place: str) -> DocumentStore:
        """The bucket of a place."""
        return self.open(place).store()

    def last_lines(self, place: str, job: str, count: int) -> list[str]:
        """The last lines of a job's log."""
        return self.open(place).last_lines(job, count)

    @cached_property
    def _outposts(self) -> dict[str, Outpost]:
        """By name, what the settings say."""
        if not self._settings.places:
            return {}
        return DeployedPlaces.from_json(self._settings.places, ENV_PLACES).outposts(PARTITION)

    def _price(self, place: str, instance_type: str) -> float | None:
        """What an hour of a type costs in a place, on demand."""
        from muster.options.places.control.choice import listed_price  # noqa: PLC0415

        at = self._outposts.get(place)
        return listed_price(self.clients, self.clients.home_region if at is None else at.region, instance_type)


OFFER = PlacementOffer(Outposts)
"""The places of a stack. Opening them is cheap: each call imports what it needs."""
