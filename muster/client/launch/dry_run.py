"""What a spec would send, need and cost, without a cloud."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from muster.client.aws.instance_types import unknown_types
from muster.client.cli.answers import CostEstimate, Forecast, NeededQuota, PriceSource, RankGroup, SourceArchive
from muster.client.launch.estimate import Cost, Quota, cost, quotas
from muster.client.launch.source_archive import PackedSource, pack
from muster.contract.aws.prices import SHIPPED_PRICES, PriceTable
from muster.contract.errors import SpecError
from muster.contract.layout import s3_uri
from muster.contract.run.job_request import training_job_request
from muster.contract.run.plan import Place, Plan
from muster.contract.spec.spec import Spec
from muster.contract.spec.stack_defaults import StackDefaults
from muster.contract.training.overrides import override_of
from muster.contract.training.ranks import show_ranks

# What is known only at the launch. Angle brackets: nobody can take them for real values.
_RUN = "<run>"
_PLACE = Place(bucket="<bucket>", role_arn="<replica-role>", job_prefix="muster", package_uri="<replica-package>")
_IMAGE = "<image-of-the-stack>"


@dataclass(frozen=True)
class Group:
    """Ranks whose requests differ in nothing but the rank."""

    ranks: tuple[int, ...]
    instance_types: tuple[str, ...]

    @property
    def text(self) -> str:
        """The ranks as a spec names them."""
        return show_ranks(self.ranks)


@dataclass(frozen=True)
class DryRun:
    """Everything that can be said of a run before it starts."""

    requests: list[dict[str, Any]]  # CreateTrainingJob of every replica's first attempt, by rank
    groups: list[Group]
    quotas: list[Quota]
    cost: Cost
    prices: PriceTable
    source: PackedSource | None  # packed as a launch would pack it, and not uploaded
    remarks: list[str]

    def document(self) -> Forecast:
        """For programs."""
        return Forecast(
            requests=tuple(self.requests),
            groups=tuple(RankGroup(ranks=group.text, instance_types=group.instance_types) for group in self.groups),
            quotas=tuple(NeededQuota(**asdict(quota)) for quota in self.quotas),
            cost=CostEstimate(
                **asdict(self.cost),
                currency="USD",
                estimate=True,
                prices=PriceSource(as_of=self.prices.as_of, region=self.prices.region, source=self.prices.source),
            ),
            source=None if self.source is None else _archive(self.source),
            remarks=tuple(self.remarks),
        )


def _archive(source: PackedSource) -> SourceArchive:
    return SourceArchive(key=source.key, files=source.files, bytes=len(source.tar))


@dataclass(frozen=True)
class Surroundings:
    """What a spec is completed with and priced by. `remarks` say what could not be learnt of them."""

    place: Place
    defaults: StackDefaults
    prices: PriceTable
    remarks: tuple[str, ...] = ()


def nowhere() -> Surroundings:
    """No stack is asked: its values stand in brackets."""
    return Surroundings(_PLACE, StackDefaults(image=_IMAGE), SHIPPED_PRICES)


def dry_run(spec: Spec, at: Surroundings | None = None) -> DryRun:
    """What a launch of `spec` would send, need and cost; with the values of a stack where one was asked.

    Raises:
        SpecError: the spec does not go together with the stack, or its source cannot be packed.
    """
    around = at or nowhere()
    if problems := around.defaults.problems(spec):
        raise SpecError(problems)
    complete = around.defaults.complete(spec)
    source = None if spec.source_dir is None or spec.delivered else pack(Path(spec.source_dir))
    if source is not None:
        complete = complete.model_copy(update={"source_dir": s3_uri(around.place.bucket, source.key)})
    plan = Plan.make(spec.name or _RUN, "<execution>", "<start>", around.place, complete)
    ranks = [plan.spec.of_rank(rank) for rank in range(spec.replicas)]
    return DryRun(
        requests=[training_job_request(plan, rank, attempt=1) for rank in range(spec.replicas)],
        groups=_groups(plan.spec),
        quotas=quotas(ranks),
        cost=cost(ranks, around.prices.usd_per_hour),
        prices=around.prices,
        source=source,
        remarks=[*around.remarks, *unknown_types(name for item in ranks for name in item.instance_types)],
    )


def _groups(spec: Spec) -> list[Group]:
    found: dict[bytes, list[int]] = {}
    for rank in range(spec.replicas):
        override = override_of(rank, spec.overrides)
        found.setdefault(override.to_json() if override else b"", []).append(rank)
    return [Group(tuple(ranks), spec.of_rank(ranks[0]).instance_types) for ranks in found.values()]
