"""A session in a place."""

from __future__ import annotations

from typing import Any

from botocore.config import Config

from muster.client.aws.error_translation import translated
from muster.client.aws.light_session import LightSession
from muster.options.places.contract.local_places import LocalPlace


class PlaceSession(LightSession):
    """A session in a place, which the embedded cloud has at an endpoint of its own.

    Raises:
        CredentialsError: there is no such profile.
    """

    def __init__(self, profile: str | None, region: str, local: LocalPlace | None) -> None:
        with translated():
            super().__init__(profile, region)
        self._local = local

    def client(self, service_name: str, region_name: str | None = None, config: Config | None = None) -> Any:
        """A new client of the service."""
        if self._local is None:
            return super().client(service_name, region_name, config)
        return self._session.create_client(
            service_name,
            region_name=self._local.region,
            config=config,
            endpoint_url=self._local.endpoint,
            aws_access_key_id=self._local.access_key_id,
            aws_secret_access_key=self._local.secret_access_key,
        )
