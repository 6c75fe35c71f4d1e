"""The settings of an embedded cloud's places."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from muster.contract.spec.places import HOME, PLACES_MAX, PlaceName
from muster.options.places.local.link_settings import LinkSettings

_REGION = r"[a-z]{2}(?:-[a-z]+)+-\d"
_WRITTEN = re.compile(rf"(?P<name>[^=]+)=(?P<region>{_REGION})(?:/(?P<account_id>\d{{12}}))?")


class PlaceSettings(BaseModel):
    """A place: a region of an account."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    region: str = Field(pattern=f"^{_REGION}$")
    account_id: str | None = Field(default=None, pattern=r"^\d{12}$")
    """None for the account of the cloud itself."""


class PlacesSettings(BaseModel):
    """Settings of the places beside `home`, which is the cloud's own account and region."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    places: Mapping[PlaceName, PlaceSettings] = Field(default_factory=dict, max_length=PLACES_MAX)
    add: list[str] = Field(
        default_factory=list, description="A place, as NAME=REGION or NAME=REGION/ACCOUNT; can be repeated."
    )
    """Further places, as the option `--place` has them."""
    links: tuple[LinkSettings, ...] = ()
    """The first that matches holds; places of one region have no link between them."""

    @model_validator(mode="before")
    @classmethod
    def _read_added(cls, values: object) -> object:
        if not isinstance(values, dict) or not values.get("add"):
            return values
        places = dict(values.get("places") or {})
        for text in values["add"]:
            found = _WRITTEN.fullmatch(text)
            if found is None:
                message = f"{text!r} is no place: write it as NAME=REGION or NAME=REGION/ACCOUNT"
                raise ValueError(message)
            places[found["name"]] = {"region": found["region"], "account_id": found["account_id"]}
        return {**values, "places": places, "add": []}

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if HOME in self.places:
            message = f"{HOME} is the name of the cloud's own account and region"
            raise ValueError(message)
        return self
