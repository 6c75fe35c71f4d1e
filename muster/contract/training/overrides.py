"""Different values for some ranks: a run can mix instance types, zones and data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field

from muster.contract.backend import Backend
from muster.contract.document import Document
from muster.contract.errors import Problem, StatedProblem
from muster.contract.training.cluster_fields import HyperPod
from muster.contract.training.input_channels import CHANNELS_MAX, Channel
from muster.contract.training.network_access import VpcConfig
from muster.contract.training.ranks import Ranks, parse_ranks
from muster.contract.training.resources import FALLBACKS_MAX, InstanceCount, Processes
from muster.contract.training.values import EnvironmentKey, EnvironmentValue, InstanceType, TrainingPlanArn


class Override(Document):
    """Values for some ranks, which replace the run's values or are added to them."""

    backend: Backend | None = Field(
        default=None, strict=False, description="replaces backend: these ranks run elsewhere"
    )
    hyperpod: HyperPod | None = Field(default=None, description="replaces hyperpod as a whole")
    instance_type: InstanceType | None = Field(
        default=None, description="replaces instance_type and with it the run's fallbacks or preferences"
    )
    fallback_instance_types: Annotated[list[InstanceType] | None, Field(max_length=FALLBACKS_MAX)] = Field(
        default=None, description="replaces fallback_instance_types; needs instance_type"
    )
    instance_count: InstanceCount | None = Field(
        default=None, description="replaces instance_count: replicas of different sizes train together"
    )
    processes: Processes | None = Field(default=None, description="replaces processes")
    spot: bool | None = Field(default=None, description="replaces spot: some ranks on demand, others on spot")
    training_plan_arn: TrainingPlanArn | None = Field(
        default=None, description="replaces training_plan_arn: the plan that reserves these ranks' instances"
    )
    vpc_config: VpcConfig | None = Field(default=None, description="replaces vpc_config, for other subnets and zones")
    environment: dict[EnvironmentKey, EnvironmentValue] = Field(
        default_factory=dict, description="added to the environment; replaces values of the same name"
    )
    input_data_config: list[Channel] = Field(
        default_factory=list,
        max_length=CHANNELS_MAX,
        description="added to the channels; replaces channels of the same name",
    )

    @property
    def changes_instance(self) -> bool:
        """Whether it changes the instance."""
        return any(value is not None for value in (self.instance_type, self.spot, self.training_plan_arn))

    def channels(self, common: list[Channel]) -> list[Channel]:
        """The channels of a rank: the run's, some replaced by those of the same name here, and then the new ones."""
        own = {channel.channel_name: channel for channel in self.input_data_config}
        replaced = [own.pop(channel.channel_name, channel) for channel in common]
        return [*replaced, *own.values()]


Overrides = dict[Ranks, Override]


def override_of(rank: int, overrides: Mapping[str, Override]) -> Override | None:
    """The override of a rank; no rank has two."""
    return next((item for ranks, item in overrides.items() if any(rank in part for part in parse_ranks(ranks))), None)


def rank_problems(overrides: Mapping[str, Override], replicas: int) -> Iterator[Problem]:
    """Ranks that do not exist, or that are in two overrides."""
    seen: dict[int, str] = {}
    for text in overrides:
        parts = parse_ranks(text)
        field = f"overrides.{text}"
        if any(not part for part in parts):
            yield StatedProblem(field, "a range is in descending order", "write the lower rank first, as in 0-3")
        # Checked before the ranks are walked: a range that is far too long is one problem, not thousands.
        beyond = max((part[-1] for part in parts if part), default=0)
        if beyond >= replicas:
            yield Problem(
                field, f"rank {beyond}", "use ranks that exist, or raise replicas", f"ranks 0 to {replicas - 1}"
            )
            continue
        twice = next((rank for part in parts for rank in part if seen.setdefault(rank, text) != text), None)
        if twice is not None:
            yield StatedProblem(field, f"rank {twice} is also in {seen[twice]}", "remove it from one of the two")
