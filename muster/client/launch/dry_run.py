"""What a spec would send, need and cost; without a cloud, or for the stack that a launch would use."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, JsonValue

from muster.client.backend_offers import client_backends, client_placement
from muster.client.checks.check_findings import CheckFindings
from muster.client.checks.check_findings import place as place_shown
from muster.client.checks.source_check import check_spec
from muster.client.client_errors import ClientError
from muster.client.launch.estimate import ClusterShare, Cost, Quota, cluster_shares, quotas
from muster.client.launch.planned_places import KnownPlace, PlannedPlaces, planned_places
from muster.client.launch.planned_recipe import PlannedRecipe
from muster.client.launch.planned_seats import PlannedSeats, cost_of_seats, planned_seats, quota_remarks
from muster.client.launch.source_archive import PackedSource, pack
from muster.contract.aws.instance_types import TRAINING_INSTANCE_TYPES
from muster.contract.aws.partitions import Locality
from muster.contract.aws.prices import SHIPPED_PRICES, PriceTable
from muster.contract.backend import Backend
from muster.contract.document import Document
from muster.contract.errors import Problem, SpecError
from muster.contract.layout import s3_uri
from muster.contract.names import execution_arn
from muster.contract.run.cluster_job import ClusterJob
from muster.contract.run.forecast import Forecast
from muster.contract.run.job_request import training_job_request
from muster.contract.run.plan import Place, Plan
from muster.contract.spec.foreign_resources import foreign_resources
from muster.contract.spec.place_rules import deployment_problems
from muster.contract.spec.recipe_reference import RECIPE_CHANNEL, RECIPE_FILE
from muster.contract.spec.replica_access import ReplicaAccess
from muster.contract.spec.spec import Spec
from muster.contract.spec.stack_defaults import StackDefaults
from muster.contract.spec.sweep_values import values_of
from muster.contract.timestamps import Timestamp
from muster.contract.training.data_and_output import CHECKPOINT_DIR
from muster.contract.training.overrides import override_of
from muster.contract.training.ranks import show_ranks

if TYPE_CHECKING:
    from muster.client.aws.cloud import Cloud

# Values that only a launch knows. The angle brackets keep them from being taken for real ones.
_RUN = "<run>"
_START = Timestamp("<start>")
_PLACE = Place(bucket="<bucket>", role_arn="<replica-role>", job_prefix="muster", package_uri="<replica-package>")
_IMAGE = "<image-of-the-stack>"
_CLUSTER, _NAMESPACE = "<cluster-of-the-stack>", "<its-first-namespace>"
_STATE_MACHINE = "arn:<partition>:states:<region>:<account>:stateMachine:<workflow>"


Request = dict[str, JsonValue]
"""A CreateTrainingJob request as JSON; of a rank on a cluster, the HyperPodPyTorchJob that is created there."""


class ClusterPlace(Document):
    """Where on a cluster the jobs of some ranks go."""

    cluster: str = Field(description="the HyperPod cluster")
    namespace: str
    queue: str | None = Field(default=None, description="Kueue's local queue; none: Kueue does not hold the jobs")
    priority: str | None = Field(default=None, description="their priority class in Kueue")
    spares: int = Field(default=0, description="pods of each replica that wait to replace one that is lost")
    least: int | None = Field(default=None, description="of an elastic replica: its fewest instances")
    most: int | None = Field(default=None, description="of an elastic replica: its most instances")


class RankGroup(Document):
    """Ranks whose requests differ only in the rank."""

    ranks: str = Field(description="as in a spec: 0-2,5")
    instance_types: tuple[str, ...] = Field(description="the first choice, then the others in order")
    instances: int = Field(description="of each replica")
    processes: int | Literal["auto"] | None = Field(
        description="on each instance; auto: one per GPU; null: the program starts them"
    )
    cluster: ClusterPlace | None = Field(default=None, description="of jobs on a cluster; none for training jobs")


class SourceArchive(Document):
    """A folder of source code as a launch would pack it."""

    folder: str = Field(description="where it is packed from")
    key: str = Field(description="its key in the stack's bucket")
    files: int
    bytes: int = Field(description="size before compression")


class DryRun(Document):
    """What a spec would send, need and cost."""

    requests: tuple[Request, ...] = Field(
        description="of every replica's first attempt, by rank: CreateTrainingJob, on a cluster the HyperPodPyTorchJob"
    )
    groups: tuple[RankGroup, ...]
    quotas: tuple[Quota, ...] = Field(description="of an elastic run: of the first replicas")
    clusters: tuple[ClusterShare, ...] = Field(default=(), description="what the run needs of clusters")
    cost: Cost
    seats: PlannedSeats | None = Field(default=None, description="of an elastic run; none where the number is fixed")
    places: PlannedPlaces | None = Field(default=None, description="of a run with `places`; none: all are at home")
    source: SourceArchive | None = Field(description="packed as for a launch, and not uploaded")
    recipe: PlannedRecipe | None = Field(default=None, description="the recipe that the spec starts from")
    sweep: tuple[dict[str, JsonValue], ...] = Field(default=(), description="the values that differ, by rank")
    forecast: Forecast | None = Field(default=None, description="what the options of `muster plan` ask to predict")
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class DeploymentContext:
    """The stack that completes and prices a spec. `remarks` say what could not be found out about it."""

    place: Place
    defaults: StackDefaults
    prices: PriceTable
    state_machine_arn: str
    remarks: tuple[str, ...] = ()
    granted: Mapping[str, float] | None = None
    """The account's quotas by name, for an elastic run; None where they are not known."""
    places: Mapping[str, KnownPlace] = field(default_factory=dict)
    """Of a run with places: those of the stack, beside home."""

    @classmethod
    def placeholders(cls) -> DeploymentContext:
        """No stack: its values are placeholders in angle brackets."""
        return cls(_PLACE, StackDefaults(image=_IMAGE), SHIPPED_PRICES, _STATE_MACHINE)

    @classmethod
    def of(cls, cloud: Cloud, spec: Spec) -> DeploymentContext:
        """The stack as a launch of `spec` would find it. Without the Price List API the shipped prices are used.

        Raises:
            ClientError: the stack cannot be found.
        """
        home = cls._at_home(cloud, spec)
        placement = None if spec.places is None else client_placement()
        known = {} if placement is None else placement.known(cloud, home.defaults.complete(spec))
        return replace(home, places=known)

    @classmethod
    def _at_home(cls, cloud: Cloud, spec: Spec) -> DeploymentContext:
        # Without a stack nothing is asked of AWS, and boto3 is not needed.
        from muster.client.aws.price_list import PricesUnknownError, listed_prices  # noqa: PLC0415

        stack = cloud.stack
        place = Place(
            bucket=stack.bucket,
            role_arn=stack.role_arn,
            job_prefix=stack.job_prefix,
            package_uri=stack.package_uri or None,
        )
        defaults = StackDefaults.from_json(stack.defaults, f"the output ReplicaDefaults of {stack.name}")
        complete = defaults.complete(spec)
        types = {name for rank in range(spec.replicas) for name in complete.of_rank(rank).instance_types}
        granted, unknown = _granted(cloud) if spec.elastic is not None else (None, ())
        try:
            prices = listed_prices(cloud.session, cloud.session.region_name, types)
            return cls(place, defaults, prices, stack.state_machine_arn, unknown, granted)
        except PricesUnknownError as error:
            why = str(error)
        except ClientError as error:
            why = f"the Price List API did not answer ({str(error).rstrip('.')})"
        remark = f"{why}; the shipped price table is used: {SHIPPED_PRICES.origin(cloud.session.region_name)}"
        return cls(place, defaults, SHIPPED_PRICES, stack.state_machine_arn, (remark, *unknown), granted)


def _granted(cloud: Cloud) -> tuple[Mapping[str, float] | None, tuple[str, ...]]:
    """The account's quotas, or a remark on why they are not known."""
    from muster.client.aws.service_quotas import granted_quotas  # noqa: PLC0415

    try:
        return granted_quotas(cloud.session), ()
    except ClientError as error:
        return None, (f"the account's quotas are not known ({str(error).rstrip('.')})",)


def dry_run(
    spec: Spec,
    at: DeploymentContext | None = None,
    found: CheckFindings | None = None,
    recipe: PlannedRecipe | None = None,
) -> DryRun:
    """What a launch of `spec` would send, need and cost; `at` is the stack to use, if any.

    `found` is what the caller's checks in the account have found, `recipe` what the spec was expanded from.

    Raises:
        SpecError: the spec or its source has mistakes, contradicts the stack's defaults, or cannot be packed.
    """
    context = at or DeploymentContext.placeholders()
    found = check_spec(spec) + (found or CheckFindings())
    problems = [*found.problems, *context.defaults.problems(spec, context.place.role_arn, deployed=at is not None)]
    if at is not None:
        problems += _problems_at(at, spec)
    if problems:
        raise SpecError(problems)
    source = None if spec.source_dir is None or spec.delivered else pack(Path(spec.source_dir))
    plan = _plan(spec, context, source)
    ranks = [plan.spec.of_rank(rank) for rank in range(spec.replicas)]
    prices = context.prices.with_prices(spec.usd_per_hour)
    elastic = plan.spec.elastic
    seats = None if elastic is None else planned_seats(ranks, elastic, prices, context.granted)
    places = planned_places(plan.spec, context.places, prices)
    first = ranks if elastic is None else ranks[: elastic.start]
    return DryRun(
        requests=tuple(_request(plan, rank, context.places) for rank in range(spec.replicas)),
        groups=tuple(_groups(plan.spec)),
        quotas=tuple(quotas(first) if places is None else ()),
        clusters=tuple(cluster_shares(first)),
        cost=cost_of_seats(ranks, len(first), prices),
        seats=seats,
        places=places,
        source=None if source is None else _archive(source, spec.source_dir or ""),
        recipe=recipe,
        sweep=tuple(values_of(spec.sweep, rank) for rank in range(spec.replicas)) if spec.sweep else (),
        remarks=(
            *context.remarks,
            *(() if places is None else places.remarks),
            *_open_model(spec),
            *found.remarks,
            *(context.defaults.access or ReplicaAccess()).remarks(plan.spec, context.place.bucket),
            *(() if seats is None else quota_remarks(seats)),
            *_bounds(ranks, prices),
            *_of_the_replicas(ranks),
            *_of_the_program(plan.spec),
        ),
    )


def _problems_at(at: DeploymentContext, spec: Spec) -> list[Problem]:
    """What does not go together with the stack that is used."""
    here = Locality.of_arn(at.state_machine_arn)
    there = {name: Locality(here.partition, one.region, one.account) for name, one in at.places.items()}
    return [*foreign_resources(spec.model_dump(mode="json"), here), *deployment_problems(spec, there, here)]


def _plan(spec: Spec, context: DeploymentContext, source: PackedSource | None) -> Plan:
    complete = context.defaults.complete(spec)
    if source is not None:
        complete = complete.model_copy(update={"source_dir": s3_uri(context.place.bucket, source.key)})
    if complete.named_role is not None:
        complete = complete.model_copy(update={"role_arn": f"<arn-of-{complete.named_role}>"})
    run = spec.name or _RUN
    return Plan.make(run, execution_arn(context.state_machine_arn, run), _START, context.place, complete)


def _of_the_replicas(ranks: Sequence[Spec]) -> Iterator[str]:
    for backend in client_backends().values():
        yield from backend.remarks(ranks)
    yield from _lost_with_instance(ranks)
    yield from _needs_between_instances(ranks)
    yield from unknown_types(name for one in ranks for name in one.instance_types)


def _of_the_program(spec: Spec) -> Iterator[str]:
    yield from _kept_for_a_rerun(spec)
    yield from _without_kwargs(spec)


def _kept_for_a_rerun(spec: Spec) -> list[str]:
    """What a program that is not Muster's finds again when its job is started again."""
    if spec.recipe is None or not spec.recipe.brings_program or spec.entrypoint is not None:
        return []
    folder = spec.checkpoint_config.local_path or CHECKPOINT_DIR
    return [f"if the job is interrupted, the program in the image starts again, with what it has saved below {folder}"]


def _without_kwargs(spec: Spec) -> list[str]:
    """What a recipe beside a trainer does where none of its sections is the trainer's."""
    if spec.recipe is None or spec.trainer is None or spec.recipe.kwargs is not None:
        return []
    remark = "the trainer gets no keyword arguments from the recipe: recipe.kwargs names the section that has them; "
    return [f"{remark}the trainer can also read /opt/ml/input/data/{RECIPE_CHANNEL}/{RECIPE_FILE}"]


def _open_model(spec: Spec) -> list[str]:
    """A remark on a model that only the stack knows."""
    model = spec.model
    if model is None or model.is_found:
        return []
    return [f"the model of {model.run} is looked up in the stack; `muster plan --deployed` shows its channel"]


def _request(plan: Plan, rank: int, places: Mapping[str, KnownPlace]) -> Request:
    """What the first attempt of a rank sends."""
    placement = None if plan.spec.places is None else client_placement()
    if placement is not None:
        return placement.request(plan, rank, places)
    backend = plan.spec.of_rank(rank).backend
    if backend is Backend.TRAINING_JOB:
        return training_job_request(plan, rank, attempt=1)
    return client_backends()[backend].request(plan, rank)


def _lost_with_instance(ranks: Iterable[Spec]) -> list[str]:
    """A remark on training jobs whose inner states are on the instance alone."""
    tiers = (spec.checkpoints for spec in ranks if spec.backend is not Backend.HYPERPOD)
    if not any(one is not None and one.s3_every is None for one in tiers):
        return []
    words = "a training job loses the states of checkpoints.memory_every with its instance"
    return [f"{words}: set checkpoints.s3_every, too, against interruptions"]


def _bounds(ranks: Iterable[Spec], prices: PriceTable) -> list[str]:
    """A remark on every set of preferences: which of them SageMaker will choose is known only when a job has it."""
    chosen_from = {spec.instance_types for spec in ranks if spec.instance_preferences is not None}
    return [
        f"SageMaker chooses among {', '.join(types)}: the cost is an upper bound, with {prices.dearest(types)}"
        for types in sorted(chosen_from)
        if len(types) > 1
    ]


def _needs_between_instances(ranks: Iterable[Spec]) -> list[str]:
    """A remark on every network in which the instances of a replica must reach each other."""
    networks = (spec.vpc_config for spec in ranks if spec.instance_count > 1)
    several = {", ".join(network.security_group_ids) for network in networks if network is not None}
    return [
        f"the instances of a replica reach each other only if the security groups {groups} admit all traffic from and "
        "to themselves"
        for groups in sorted(several)
    ]


def _archive(source: PackedSource, folder: str) -> SourceArchive:
    return SourceArchive(folder=place_shown(Path(folder)), key=source.key, files=source.files, bytes=len(source.tar))


def _groups(spec: Spec) -> list[RankGroup]:
    found: dict[bytes, list[int]] = {}
    for rank in range(spec.replicas):
        override = override_of(rank, spec.overrides)
        found.setdefault(override.to_json() if override else b"", []).append(rank)
    return [_group(ranks, spec.of_rank(ranks[0])) for ranks in found.values()]


def _group(ranks: list[int], spec: Spec) -> RankGroup:
    return RankGroup(
        ranks=show_ranks(ranks),
        instance_types=spec.instance_types,
        instances=spec.instance_count,
        processes=spec.processes,
        cluster=_place(spec),
    )


def _place(spec: Spec) -> ClusterPlace | None:
    job = ClusterJob.of(spec)
    if job is None:
        return None
    stated = job.model_dump(include={"queue", "priority", "spares", "least", "most"})
    return ClusterPlace(cluster=job.cluster or _CLUSTER, namespace=job.namespace or _NAMESPACE, **stated)


def unknown_types(names: Iterable[str]) -> list[str]:
    """A remark on every instance type that this release does not know; it may be newer, so no error."""
    remarks = []
    for name in sorted(set(names) - TRAINING_INSTANCE_TYPES):
        near = difflib.get_close_matches(name, sorted(TRAINING_INSTANCE_TYPES), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        remarks.append(f"{name} is not among the instance types that this release of Muster knows{hint}")
    return remarks
