"""Sessions in places, and the places of the embedded cloud, as a shell that uses it knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.config import Config
from pydantic import TypeAdapter

from muster.client.aws.error_translation import translated
from muster.client.aws.light_session import LightSession
from muster.contract.document import StoredPart
from muster.contract.spec.places import ENV_LOCAL_PLACES, PlaceName


class LocalPlace(StoredPart):
    """A place of the embedded cloud: a region of an account, with an endpoint and credentials of its own."""

    region: str
    account: str
    endpoint: str
    access_key_id: str
    secret_access_key: str

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a process that calls this place."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
        }


_PLACES = TypeAdapter(dict[PlaceName, LocalPlace])


def local_places(environment: Mapping[str, str]) -> dict[str, LocalPlace]:
    """The places that the environment names; none where there is no embedded cloud, or one with a single place."""
    return _PLACES.validate_json(environment.get(ENV_LOCAL_PLACES) or "{}")


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
