"""A session for the client's own calls: botocore's, with the part of boto3's interface that Muster uses.

To import boto3 takes longer than most calls, for its resources and its transfers of files, which Muster does not use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, Union

import botocore.session
from botocore.config import Config

from muster.client.aws.service_models import ServiceModels

if TYPE_CHECKING:
    import boto3

AnySession: TypeAlias = Union["LightSession", "boto3.Session"]
"""A session that Muster has opened, or one that its user has given."""


class LightSession:
    """What a `boto3.Session` of this profile and region does; one that is left out is chosen as the AWS CLI chooses it.

    Raises:
        botocore.exceptions.ProfileNotFound: there is no such profile.
    """

    def __init__(self, profile: str | None, region: str | None) -> None:
        self._session = botocore.session.Session(profile=profile)
        models = ServiceModels(self._session.get_config_variable("data_path"))
        self._session.register_component("data_loader", models)
        # None where none is configured, which the types of boto3 leave out, too.
        self.region_name: str = region or self._session.get_config_variable("region")
        self.profile_name: str = self._session.profile or "default"
        # An unknown profile is an error now, and not of the first call.
        self._session.get_scoped_config()

    def client(self, service_name: str, region_name: str | None = None, config: Config | None = None) -> Any:
        """A new client of the service."""
        return self._session.create_client(service_name, region_name=region_name or self.region_name, config=config)

    def get_partition_for_region(self, region_name: str) -> str:
        """`aws`, `aws-cn`, `aws-us-gov`."""
        partition: str = self._session.get_partition_for_region(region_name)
        return partition
