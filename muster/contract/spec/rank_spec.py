"""The spec of one rank, and the ranks of a spec by what they run on. Every function reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from muster.contract.aws.instance_types import has_own_disks
from muster.contract.backend import Backend
from muster.contract.spec.sweep import with_sweep
from muster.contract.training.cluster_fields import HyperPod
from muster.contract.training.overrides import Override, override_of
from muster.contract.training.ranks import parse_ranks

if TYPE_CHECKING:
    from muster.contract.spec.spec_fields import SpecFields

S = TypeVar("S", bound="SpecFields")


def spec_of_rank(spec: S, rank: int) -> S:
    """The values that hold for `rank`."""
    override = override_of(rank, spec.overrides)
    overridden = spec if override is None else with_override(spec, override)
    return with_sweep(overridden, rank) if spec.sweep else overridden


def with_override(spec: S, override: Override) -> S:
    """`spec` with the values of `override` in place of its own."""
    update: dict[str, object] = {
        "backend": override.backend or spec.backend,
        "hyperpod": override.hyperpod or spec.hyperpod,
        "environment": {**spec.environment, **override.environment},
        "input_data_config": override.channels(spec.input_data_config),
        "instance_count": override.instance_count or spec.instance_count,
        "overrides": {},
        "processes": override.processes or spec.processes,
        "spot": spec.spot if override.spot is None else override.spot,
        "training_plan_arn": override.training_plan_arn or spec.training_plan_arn,
        "vpc_config": override.vpc_config or spec.vpc_config,
    }
    if override.instance_type is not None:
        fallbacks = override.fallback_instance_types or []
        update |= {
            "instance_type": override.instance_type,
            "fallback_instance_types": fallbacks,
            "instance_preferences": None,
        }
        # The run's key is for those of its replicas that have a volume.
        if all(map(has_own_disks, [override.instance_type, *fallbacks])):
            update["volume_kms_key_id"] = None
    return spec.model_copy(update=update)


@dataclass(frozen=True)
class ClusterPart:
    """Ranks with the same values: those without an override (`ranks` is empty), or those of one.

    `run` is the spec of the whole run, `spec` that of these ranks.
    """

    ranks: str
    override: Override | None
    run: SpecFields
    spec: SpecFields

    @property
    def on_cluster(self) -> bool:
        """Whether they run on a cluster."""
        return self.spec.backend is Backend.HYPERPOD

    @property
    def asked(self) -> HyperPod:
        """Their `hyperpod`, or its defaults."""
        return self.spec.hyperpod or HyperPod()

    @property
    def section(self) -> str:
        """Where the part's `hyperpod` is written."""
        own = self.override is not None and self.override.hyperpod is not None
        return f"overrides.{self.ranks}.hyperpod" if own else "hyperpod"


def uses_cluster(spec: SpecFields) -> bool:
    """Whether some rank runs on a cluster."""
    return any(part.on_cluster for part in parts_of(spec))


def uses_training_jobs(spec: SpecFields) -> bool:
    """Whether some rank runs as training jobs."""
    return any(not part.on_cluster for part in parts_of(spec))


def parts_of(spec: SpecFields) -> Iterator[ClusterPart]:
    """The parts of a spec: first the ranks that no override names."""
    # Not walked beyond the last rank: a range that is far too long is one problem of another rule.
    within = range(spec.replicas)
    named = {
        rank
        for ranks in spec.overrides
        for part in parse_ranks(ranks)
        for rank in range(part.start, min(part.stop, within.stop))
    }
    if len(named) < spec.replicas:
        yield ClusterPart("", None, spec, spec)
    for ranks, override in spec.overrides.items():
        yield ClusterPart(ranks, override, spec, with_override(spec, override))
