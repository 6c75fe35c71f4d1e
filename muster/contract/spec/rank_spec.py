"""The spec of one rank: the run's values with the rank's override and its values of the sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from muster.contract.aws.instance_types import has_own_disks
from muster.contract.spec.sweep import with_sweep
from muster.contract.training.overrides import Override, override_of

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
