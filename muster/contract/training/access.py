"""RoleArn, VpcConfig and what else decides whom a replica can reach, and who can reach it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from muster.contract.document import Document
from muster.contract.errors import Problem
from muster.contract.training.section import Section
from muster.contract.training.values import RoleArn, Says

_NetworkId = Annotated[
    str, Field(min_length=1, max_length=32, pattern=r"^[-0-9a-zA-Z]+$"), Says("an ID of letters, digits and hyphens")
]


class VpcConfig(Section):
    """The VPC in which a replica runs. It must reach S3: through a gateway endpoint or a NAT."""

    security_group_ids: list[_NetworkId] = Field(min_length=1, max_length=5, description="security groups")
    subnets: list[_NetworkId] = Field(min_length=1, max_length=16, description="subnets, in several zones for capacity")


class RemoteDebugConfig(Section):
    """A shell in the running container, through Systems Manager."""

    enable_remote_debug: bool = Field(description="allow it")


class SessionChainingConfig(Section):
    """Session tags for access control by attributes."""

    enable_session_tag_chaining: bool = Field(description="hand the caller's session tags on to the role")


class InfraCheckConfig(Section):
    """A health check of the hardware before the training."""

    enable_infra_check: bool = Field(description="check the instance first")


class AccessFields(Document):
    """Role and network."""

    role_arn: RoleArn | None = Field(default=None, description="role of the containers; default the stack's")
    vpc_config: VpcConfig | None = Field(default=None, description="the VPC in which the replicas run")
    enable_network_isolation: bool = Field(default=False, description="refused when true: replicas meet in S3")
    enable_inter_container_traffic_encryption: bool | None = Field(
        default=None, description="no traffic of this kind exists in a replica; for policies that demand the setting"
    )
    remote_debug_config: RemoteDebugConfig | None = Field(default=None, description="a shell in the container")
    session_chaining_config: SessionChainingConfig | None = Field(default=None, description="session tags")
    infra_check_config: InfraCheckConfig | None = Field(default=None, description="a health check of the instance")

    def access_problems(self, *, private_registry: bool) -> Iterator[Problem]:
        """What cuts a replica off."""
        if self.enable_network_isolation:
            allowed = "false: true cuts the container off from S3, and the rendezvous would wait for ever"
            remedy = "leave it out; a VPC with an S3 endpoint keeps traffic private"
            yield Problem("enable_network_isolation", "true", remedy, allowed)
        if private_registry and self.vpc_config is None:
            field = "training_image_config.training_repository_access_mode"
            yield Problem(field, "'Vpc' without vpc_config", "name the VPC in vpc_config", "Vpc only with vpc_config")

    def access_request(self) -> dict[str, Any]:
        """The members of the request other than RoleArn. Network isolation is always off."""
        sections = {
            "VpcConfig": self.vpc_config,
            "RemoteDebugConfig": self.remote_debug_config,
            "SessionChainingConfig": self.session_chaining_config,
            "InfraCheckConfig": self.infra_check_config,
        }
        members: dict[str, Any] = {name: section.request() for name, section in sections.items() if section is not None}
        if self.enable_inter_container_traffic_encryption is not None:
            members["EnableInterContainerTrafficEncryption"] = self.enable_inter_container_traffic_encryption
        return {**members, "EnableNetworkIsolation": False}
