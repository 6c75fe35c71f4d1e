"""A session for the client's own calls: botocore's, with the part of boto3's interface that Muster uses.

To import boto3 takes longer than most calls, for its resources and its transfers of files, which Muster does not use.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import botocore.session
import pydantic_core
from botocore import exceptions as aws
from botocore.config import Config
from botocore.loaders import JSONFileLoader, Loader, create_loader

from muster.client.client_errors import CredentialsError, os_reason

if TYPE_CHECKING:
    import boto3

_GZIP = zlib.MAX_WBITS | 16
"""zlib's number for data with a header of gzip."""


class _FileLoader(JSONFileLoader):
    def _load_file(self, full_path: str, open_method: Callable[..., Any]) -> Any:
        try:
            body = Path(full_path).read_bytes()
        except (FileNotFoundError, IsADirectoryError):
            return None
        if open_method is gzip.open:
            # At once: a gzip file that is read as a stream takes twice as long.
            body = zlib.decompress(body, _GZIP)
        return pydantic_core.from_json(body)


class ServiceModels(Loader):
    """Reads the files that botocore's own loader reads, from the same folders, in less time.

    botocore looks into the folders of all its 400 services before it opens one, and makes ordered dictionaries of what
    dictionaries keep in order by themselves. A command would pay for both with each client.
    """

    FILE_LOADER_CLASS = _FileLoader

    def __init__(self, data_path: str | None) -> None:
        """`data_path`: the folders that the user's configuration adds, as botocore writes them."""
        folders = create_loader(data_path).search_paths
        super().__init__(extra_search_paths=folders, include_default_search_paths=False)

    def list_available_services(self, type_name: str) -> list[str]:  # noqa: ARG002 - botocore's interface
        """The services that have a folder. Whether it holds this type of model shows when the model is loaded."""
        folders = (Path(path) for path in self.search_paths)
        return sorted({service.name for folder in folders if folder.is_dir() for service in folder.iterdir()})


AnySession: TypeAlias = Union["LightSession", "boto3.Session"]
"""A session that Muster has opened, or one that its user has given."""


class _Session(botocore.session.Session):
    """botocore's session. If a profile's credentials cannot be had, the error names the profile."""

    _named: Any = None

    def get_credentials(self) -> Any:
        """The credentials; None if there are none.

        Raises:
            CredentialsError: they cannot be had, now or when they are renewed.
        """
        with self._naming():
            found = super().get_credentials()
        if found is not None and found is not self._named:
            renewed, self._named = found.get_frozen_credentials, found
            found.get_frozen_credentials = self._naming()(renewed)  # type: ignore[method-assign]
        return found

    @contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except aws.BotoCoreError as error:
            whose, is_program = self._origin()
            # Other providers name what they have asked.
            if not is_program or not isinstance(error, aws.CredentialRetrievalError):
                raise
            message = f"{whose} {_failure(error)}"
            raise CredentialsError(message) from error
        except (OSError, ValueError, TypeError, AttributeError, RuntimeError) as error:
            message = f"{self._origin()[0]} {_failure(error)}"
            raise CredentialsError(message) from error

    def _origin(self) -> tuple[str, bool]:
        """Where the credentials are from, and whether that is a program: the profile's, or that of its source."""
        profiles, name = self.full_config.get("profiles", {}), self.profile or "default"
        source, seen = name, set[str]()
        while source in profiles and source not in seen:
            if "credential_process" in profiles[source]:
                return f"the credential_process of the profile {source}", True
            seen.add(source)
            source = profiles[source].get("source_profile")
        return f"the profile {name}", False


def _failure(error: Exception) -> str:
    """What went wrong, as the end of a sentence of one line."""
    match error:
        case aws.CredentialRetrievalError():
            said = " ".join(str(dict(error.kwargs).get("error_msg", "")).split())
            return f"failed: {said}" if said else "failed and did not say why"
        case OSError():
            name = "" if error.filename is None else f"{error.filename}: "
            return f"cannot be used: {name}{os_reason(error)}"
        case ValueError():
            return f"gives no credentials that can be read: {error}"
        case RuntimeError():
            return f"cannot be used: {error}"
    return "gives no credentials that can be read"


class LightSession:
    """What a `boto3.Session` of this profile and region does; one that is left out is chosen as the AWS CLI chooses it.

    Raises:
        botocore.exceptions.ProfileNotFound: there is no such profile.
    """

    def __init__(self, profile: str | None, region: str | None) -> None:
        self._session = _Session(profile=profile)
        models = ServiceModels(self._session.get_config_variable("data_path"))
        self._session.register_component("data_loader", models)
        # None where none is configured, which the types of boto3 leave out, too.
        self.region_name: str = region or self._session.get_config_variable("region")
        self.profile_name: str = self._session.profile or "default"
        # An unknown profile is an error now, and not of the first call.
        self._session.get_scoped_config()

    def client(self, service_name: str, region_name: str | None = None, config: Config | None = None) -> Any:
        """A new client of the service.

        Raises:
            CredentialsError: there are credentials, and they cannot be had.
        """
        return self._session.create_client(service_name, region_name=region_name or self.region_name, config=config)

    def get_partition_for_region(self, region_name: str) -> str:
        """`aws`, `aws-cn`, `aws-us-gov`."""
        partition: str = self._session.get_partition_for_region(region_name)
        return partition
