"""RoleArn, VpcConfig and the other members that decide what a replica can reach, and what can reach it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from muster.contract.document import Document
from muster.contract.errors import Problem
from muster.contract.training.values import RoleArnOrName, Section, Wording

_NetworkId = Annotated[
    str, Field(min_length=1, max_length=32, pattern=r"^[-0-9a-zA-Z]+$"), Wording("an ID of letters, digits and hyphens")
]


class VpcConfig(Section):
    """The VPC in which a replica runs. It must reach S3: through a gateway endpoint, which is free, or through a NAT,
    which costs by the gigabyte (docs/costs.md)."""

    security_group_ids: list[_NetworkId] = Field(min_length=1, max_length=5, description="security groups")
    subnets: list[_NetworkId] = Field(min_length=1, max_length=16, description="subnets, in several zones for capacity")


class RemoteDebugConfig(Section):
    """A shell in the running container, through Systems Manager."""

    enable_remote_debug: bool = Field(description="allow it")


class SessionChainingConfig(Section):
    """Session tags for access control by attributes."""

    enable_session_tag_chaining: bool = Field(description="pass the caller's session tags on to the role")


class InfraCheckConfig(Section):
    """A health check of the hardware before training."""

    enable_infra_check: bool = Field(description="check the instance first")


class AccessFields(Document):
    """Role and network."""

    role_arn: RoleArnOrName | None = Field(
        default=None, description="role of the containers, its ARN or its name; default the stack's"
    )
    vpc_config: VpcConfig | None = Field(default=None, description="the VPC in which the replicas run")
    enable_network_isolation: bool = Field(
        default=False,
        description="only with a recipe whose image has the program: all others exchange data through S3",
    )
    enable_inter_container_traffic_encryption: bool | None = Field(
        default=None,
        description="encrypt the traffic between a replica's instances; one instance has none",
    )
    remote_debug_config: RemoteDebugConfig | None = Field(default=None, description="a shell in the container")
    session_chaining_config: SessionChainingConfig | None = Field(default=None, description="session tags")
    infra_check_config: InfraCheckConfig | None = Field(default=None, description="a health check of the instance")

    @property
    def named_role(self) -> str | None:
        """The role's name, if the spec names it without an ARN; the client looks the ARN up."""
        return None if self.role_arn is None or self.role_arn.startswith("arn:") else self.role_arn

    def access_problems(self, *, private_registry: bool, alone: bool) -> Iterator[Problem]:
        """Settings with which a replica cannot reach S3 or its image; `alone`: nothing of Muster runs in it."""
        if self.enable_network_isolation and not alone:
            allowed = "replicas exchange data through S3 and cannot reach it when isolated"
            remedy = "leave the field out (a VPC with an S3 endpoint keeps traffic private)"
            yield Problem("enable_network_isolation", "true", remedy, allowed)
        chained = self.session_chaining_config
        if chained is not None and not chained.enable_session_tag_chaining and self.role_arn is None:
            field = "session_chaining_config.enable_session_tag_chaining"
            allowed = "the stack's role has rights only by the tags of a run's session"
            yield Problem(field, "false", "leave it out, or name a role of your own in role_arn", allowed)
        if private_registry and self.vpc_config is None:
            field = "training_image_config.training_repository_access_mode"
            yield Problem(field, "'Vpc'", "set vpc_config", "allowed only with vpc_config")
