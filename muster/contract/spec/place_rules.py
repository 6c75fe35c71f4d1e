"""What `places` asks of the rest of a spec. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from muster.contract.aws.partitions import Locality
from muster.contract.backend import Backend
from muster.contract.errors import Problem, StatedProblem
from muster.contract.spec.foreign_resources import foreign_resources
from muster.contract.spec.places import HOME, undeployed
from muster.contract.spec.rank_spec import parts_of

if TYPE_CHECKING:
    from muster.contract.spec.spec_fields import SpecFields


def place_problems(spec: SpecFields) -> Iterator[Problem]:
    """Problems between `places` and the other fields."""
    places = spec.places
    if places is None:
        return
    yield from places.problems(spec.replicas)
    if not spec.has_trainer:
        remedy = "leave it out: only replicas with a trainer train one model over places"
        yield StatedProblem("places", "set without trainer", remedy)
    if spec.sweep:
        yield StatedProblem("places", "set together with sweep", "leave one of the two out")
    if any(part.spec.backend is not Backend.TRAINING_JOB for part in parts_of(spec)):
        yield StatedProblem("places", "set together with a backend", "leave one of the two out")
    if places.ladder:
        yield from _beside_a_ladder(spec)
    abroad = [name for name in places.named if name != HOME]
    if abroad:
        yield from _bound_to_home(spec, abroad[0])


def _beside_a_ladder(spec: SpecFields) -> Iterator[Problem]:
    """Other fields that say on what replicas run."""
    set_fields = {
        "fallback_instance_types": bool(spec.fallback_instance_types),
        "instance_preferences": spec.instance_preferences is not None,
        "training_plan_arn": spec.training_plan_arn is not None,
        **{f"overrides.{ranks}": override.changes_instance for ranks, override in spec.overrides.items()},
    }
    for field, is_set in set_fields.items():
        if is_set:
            remedy = "write a rung for each type, plan or place in places.ladder instead"
            yield StatedProblem(field, "set together with places.ladder", remedy)
    for number, rung in enumerate(spec.places.ladder if spec.places and spec.keep_alive_period_in_seconds else ()):
        if rung.spot:
            yield StatedProblem(
                f"places.ladder[{number}].spot",
                "set to true together with keep_alive_period_in_seconds",
                "leave one of the two out",
                "warm pools are available only for on-demand instances",
            )


def _bound_to_home(spec: SpecFields, place: str) -> Iterator[Problem]:
    """What exists in the stack's region or account alone; a stack may set it as a default."""
    output = spec.output_data_config
    set_fields = {
        "vpc_config": any(part.spec.vpc_config is not None for part in parts_of(spec)),
        "volume_kms_key_id": spec.volume_kms_key_id is not None,
        "output_data_config.kms_key_id": output.kms_key_id is not None,
        "checkpoint_config.s3_uri": spec.checkpoint_config.s3_uri is not None,
        "output_data_config.s3_output_path": output.s3_output_path is not None,
        "role_arn": spec.role_arn is not None,
        "training_plan_arn": spec.training_plan_arn is not None and bool(spec.places and spec.places.shares),
    }
    for field, is_set in set_fields.items():
        if is_set:
            statement = f"set, and a job in {place} cannot use it"
            remedy = "leave it out, or let all replicas run at home: the stack's defaults count, too"
            yield StatedProblem(field, statement, remedy, "it belongs to the stack's region and account")


def deployment_problems(spec: SpecFields, deployed: Mapping[str, Locality], home: Locality) -> list[Problem]:
    """Places that the stack does not have, by name, and training plans of other regions than their rung's. Pure."""
    places = spec.places
    if places is None:
        return []
    problems = [*undeployed(places, deployed)]
    where = {**deployed, HOME: home}
    for number, rung in enumerate(places.ladder):
        if rung.training_plan is not None and rung.place in where:
            field = f"places.ladder[{number}].training_plan"
            problems += foreign_resources(rung.training_plan, where[rung.place], field)
    return problems
