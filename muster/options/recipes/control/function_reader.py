"""Reading the recipe that a spec only names, with the rights of the function plan: from S3 and the public hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from muster.contract.aws.ranged_reads import first_bytes
from muster.contract.layout import STACK_FOLDERS
from muster.control.aws.aws_errors import error_code, http_status, is_denied
from muster.control.aws.clients import Clients
from muster.options.recipes.contract.recipe_reader import decoded
from muster.options.recipes.contract.recipe_text import TEXT_MAX
from muster.options.recipes.contract.text_places import S3Place, refuse

_LAUNCH = "start the run with `muster launch`, which reads it on your machine"


class FunctionReader:
    """A `RecipeReader` without local files. A call that fails in passing is raised as it is, and made again later.

    `bucket` is the stack's: the function may read there what no caller may, so its folders are refused.
    """

    def __init__(self, clients: Clients, account: str, bucket: str) -> None:
        self._clients = clients
        self._account = account
        self._bucket = bucket

    def read_text(self, place: str) -> str:
        """A local file, which the function does not have."""
        refuse(f"{place!r} is a file, which only your machine has", f"{_LAUNCH}, or name an object in S3")

    def files(self, folder: str) -> Sequence[str]:
        """A local folder, which the function does not have."""
        refuse(f"{folder!r} is a folder, which only your machine has", f"{_LAUNCH}, or name an object in S3")

    def hub_models(self, hub: str) -> Sequence[str]:  # noqa: ARG002 - of the protocol
        """None: the function may describe models, and not list them."""
        return ()

    def account_id(self) -> str:
        """The account of the stack."""
        return self._account

    def read_object(self, place: S3Place) -> str:
        """The text of an object that the role may read for everyone."""
        if place.bucket == self._bucket and not _is_open(place.key):
            remedy = f"keep recipes under another prefix, and name it in recipes.sources, or {_LAUNCH}"
            refuse(f"{place.uri} is in a folder of the stack's bucket that Muster itself uses", remedy)
        try:
            span = first_bytes(TEXT_MAX + 1)
            answer = self._clients.s3.get_object(Bucket=place.bucket, Key=place.key, Range=span)
            return decoded(answer["Body"].read(TEXT_MAX + 1), place.uri)
        except ClientError as error:
            if error_code(error) == "InvalidRange":  # an empty object has no first byte
                return ""
            if http_status(error) == 404:  # no such object, bucket or access point
                refuse(f"{place.uri} does not exist", "name an object that does")
            if http_status(error) == 403:
                folder = place._replace(key=place.key[: place.key.rfind("/") + 1]).uri
                line = f'sources = ["{folder}"]'
                remedy = f"write {line} in the table [recipes] of muster.toml and deploy, or {_LAUNCH}"
                refuse(f"the function plan may not read {place.uri}", remedy)
            raise
        except BotoCoreError as error:
            if place.region is None:
                raise
            refuse(f"the access point of {place.uri} cannot be reached: {error}", "correct its ARN")

    def hub_content(self, hub: str, model: str) -> Mapping[str, Any] | None:
        """The model in a hub that the role may read."""
        try:
            found = self._clients.sagemaker.describe_hub_content(
                HubName=hub, HubContentType="Model", HubContentName=model
            )
        except ClientError as error:
            if error_code(error) in {"ResourceNotFound", "ResourceNotFoundException", "ValidationException"}:
                return None
            if is_denied(error):
                refuse(f"the function plan may not read the hub {hub}", _LAUNCH)
            raise
        return found


def _is_open(key: str) -> bool:
    """Whether an object of the stack's bucket can be a recipe: its settings name none of Muster's own folders."""
    parts = key.split("/")
    return parts[0] not in STACK_FOLDERS and {"", ".", ".."}.isdisjoint(parts)
