"""Reading what a recipe names: files of this machine, objects of any region, and models of SageMaker Hub."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.client.client_errors import os_reason
from muster.options.recipes.contract.gathering import gather
from muster.options.recipes.contract.recipe_reader import CHECKOUT_FILES_MAX, decoded
from muster.options.recipes.contract.recipe_request import read_request
from muster.options.recipes.contract.recipe_text import TEXT_MAX
from muster.options.recipes.contract.resolved_recipe import RecipeSources
from muster.options.recipes.contract.text_places import S3Place, refuse

if TYPE_CHECKING:
    from muster.client.aws.light_session import AnySession

_MISSING = {"NoSuchKey", "NoSuchBucket"}
_PAGES_MAX = 50  # of 100 models: SageMakerPublicHub has about 1,000
_UNKNOWN = {"ResourceNotFound", "ResourceNotFoundException", "ValidationException"}
_NAMES_MAX = 1_000  # of a folder, when the nearest one is looked for


def _instead_of(path: Path) -> str:
    """What to do about a file that does not exist: the nearest name in its folder."""
    try:
        names = [entry.name for entry in islice(os.scandir(path.parent), _NAMES_MAX)]
    except OSError:
        return f"{path.parent} does not exist either; correct the path"
    near = difflib.get_close_matches(path.name, names, n=1, cutoff=0.6)
    return f"did you mean {path.with_name(near[0])}?" if near else "correct the path"


def private_hub() -> str | None:
    """The hub that is asked first where none is named, as the SageMaker SDK chooses it."""
    return os.environ.get("SAGEMAKER_HUB_NAME") or None


def read_sources(recipe: object, session: Callable[[], AnySession]) -> RecipeSources:
    """What the `recipe` of a spec is made of. The session is opened only for one that is in S3 or in a hub.

    Raises:
        SpecError: the recipe has problems, all of which are listed.
        ClientError: AWS cannot be reached or refuses.
    """
    return gather(read_request(recipe), ClientReader(session), private_hub())


class ClientReader:
    """A `RecipeReader` with the rights of the user. The session is opened when AWS is asked for the first time.

    Where AWS cannot be reached, its methods raise a `muster.client.client_errors.ClientError`.
    """

    def __init__(self, session: Callable[[], AnySession]) -> None:
        self._open = session

    # botocore is imported with the session: a recipe in a file needs none of it.
    @cached_property
    def _session(self) -> AnySession:
        return self._open()

    def read_text(self, place: str) -> str:
        """The text of a file."""
        path = Path(place)
        if "\0" in place:
            refuse(f"{place!r} is no path", "correct it")
        try:
            if path.exists() and not path.is_file():
                refuse(f"{place} is {'a folder' if path.is_dir() else 'not a file'}", "name a file")
            with path.open("rb") as file:
                return decoded(file.read(TEXT_MAX + 1), place)
        except FileNotFoundError:
            refuse(f"{place} does not exist", _instead_of(path))
        except OSError as error:
            refuse(f"{place} cannot be read: {os_reason(error)}", "name a file that can be read")

    def files(self, folder: str) -> Sequence[str]:
        """The paths of a folder's YAML files; hidden folders and links are left out."""
        if not Path(folder).is_dir():
            refuse(f"{folder} is not a folder", "clone the public recipes, and name the folder")
        found: list[str] = []
        for above, folders, names in os.walk(folder):
            folders[:] = [name for name in folders if not name.startswith(".")]
            paths = [Path(above, name) for name in names if name.endswith((".yaml", ".yml"))]
            found += [path.relative_to(folder).as_posix() for path in paths if not path.is_symlink()]
            if len(found) > CHECKOUT_FILES_MAX:
                refuse(
                    f"{folder} has more than {CHECKOUT_FILES_MAX:,} YAML files", "name the folder of the clone alone"
                )
        return found

    def read_object(self, place: S3Place) -> str:
        """The text of an object; S3 says where its bucket is, and an access point's ARN names its region."""
        from botocore.exceptions import ClientError as AwsError  # noqa: PLC0415

        from muster.client.aws.error_translation import error_code, translated  # noqa: PLC0415
        from muster.contract.aws.ranged_reads import first_bytes  # noqa: PLC0415

        with translated():
            try:
                client = self._client("s3", place.region)
                span = first_bytes(TEXT_MAX + 1)
                answer = client.get_object(Bucket=place.bucket, Key=place.key, Range=span)
                return decoded(answer["Body"].read(TEXT_MAX + 1), place.uri)
            except AwsError as error:
                if error_code(error) == "InvalidRange":  # an empty object has no first byte
                    return ""
                if error_code(error) in _MISSING:
                    refuse(f"{place.uri} does not exist", "correct the URI")
                if error.response["ResponseMetadata"]["HTTPStatusCode"] == 403:
                    statement = f"these credentials may not read {place.uri}, or it does not exist"
                    remedy = "use a role that has s3:GetObject on it; with s3:ListBucket S3 says which of the two it is"
                    refuse(statement, remedy)
                raise

    def hub_content(self, hub: str, model: str) -> Mapping[str, Any] | None:
        """The model in this hub, or a reference to one; None where the hub, or the model in it, does not exist."""
        from botocore.exceptions import ClientError as AwsError  # noqa: PLC0415

        from muster.client.aws.error_translation import error_code, translated  # noqa: PLC0415

        for kind in ("Model", "ModelReference"):
            with translated():
                try:
                    named = {"HubName": hub, "HubContentType": kind, "HubContentName": model}
                    found: Mapping[str, Any] = self._client("sagemaker").describe_hub_content(**named)
                except AwsError as error:
                    if error_code(error) in _UNKNOWN:
                        continue
                    if error_code(error) in {"AccessDenied", "AccessDeniedException"}:
                        remedy = "use a role that has sagemaker:DescribeHubContent on it"
                        refuse(f"these credentials may not read the hub {hub}", remedy)
                    raise
            return found
        return None

    def hub_models(self, hub: str) -> Sequence[str]:
        """The names of the models of a hub, for a suggestion; none where they may not be listed."""
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415
        from botocore.exceptions import ClientError as AwsError  # noqa: PLC0415

        names: list[str] = []
        request = {"HubName": hub, "HubContentType": "Model", "MaxResults": 100}
        try:
            # botocore has no paginator for this call.
            for _ in range(_PAGES_MAX):
                answer = self._client("sagemaker").list_hub_contents(**request)
                names += [one["HubContentName"] for one in answer["HubContentSummaries"]]
                if not answer.get("NextToken"):
                    break
                request["NextToken"] = answer["NextToken"]
        except (AwsError, BotoCoreError):
            pass
        return names

    def account_id(self) -> str:
        """The account whose credentials are used."""
        from muster.client.aws.error_translation import translated  # noqa: PLC0415

        with translated():
            return str(self._client("sts").get_caller_identity()["Account"])

    def _client(self, service: str, region: str | None = None) -> Any:
        from muster.client.aws.connection import CONFIG  # noqa: PLC0415

        make: Any = self._session.client
        return make(service, region_name=region, config=CONFIG)
