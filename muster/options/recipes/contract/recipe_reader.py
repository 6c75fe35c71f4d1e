"""How the sources of a recipe are read. The client and the function that plans a run have one implementation each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from muster.options.recipes.contract.recipe_text import TEXT_MAX
from muster.options.recipes.contract.text_places import S3Place, refuse

CHECKOUT_FILES_MAX = 20_000
"""Files of a checkout that are looked at; that of the public recipes has 1,700."""


def decoded(body: bytes, place: str) -> str:
    """The text of a recipe, of which the first TEXT_MAX + 1 bytes were read.

    Raises:
        PlaceError: it is larger, or not UTF-8.
    """
    if len(body) > TEXT_MAX:
        refuse(f"{place} has more than {TEXT_MAX:,} bytes", "name a recipe, which is smaller")
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        refuse(f"{place} is not UTF-8 text", "write it as YAML")


class RecipeReader(Protocol):
    """Reads what a request names. A read that fails is a `PlaceError` whose words a user can act on."""

    def read_text(self, place: str) -> str:
        """The text of a local file; a relative path begins at the spec's folder.

        Raises:
            PlaceError: there is no such file, it is no text of a recipe's size, or no local files can be read here.
        """

    def read_object(self, place: S3Place) -> str:
        """The text of an object, in whatever region its bucket is.

        Raises:
            PlaceError: there is none, it may not be read, or it is no text of a recipe's size.
        """

    def hub_content(self, hub: str, model: str) -> Mapping[str, Any] | None:
        """What DescribeHubContent says of a model, or of a reference to one; None where there is none, or no such hub.

        Raises:
            PlaceError: the hub may not be read.
        """

    def hub_models(self, hub: str) -> Sequence[str]:
        """The names of the models of a hub, for a suggestion; none where they may not be listed."""

    def account_id(self) -> str:
        """The account whose credentials are used.

        Raises:
            PlaceError: it cannot be found out.
        """

    def files(self, folder: str) -> Sequence[str]:
        """The paths of the YAML files below a local folder, with `/`; links are left out. At most CHECKOUT_FILES_MAX.

        Raises:
            PlaceError: there is no such folder, it has more files, or no local files can be read here.
        """
