"""The places of the embedded cloud, as a shell that uses it knows them."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import TypeAdapter

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
