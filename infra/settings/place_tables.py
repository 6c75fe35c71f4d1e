"""Places besides the stack's own: the tables `places.NAME` of the settings. Their rules are the option's."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from muster.contract.training.values import Wording

AccountId = Annotated[str, Field(pattern=r"^[0-9]{12}$"), Wording("12 digits", "write the account's ID in quotes")]
Region = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]+$"), Wording("a region such as eu-west-1")]


class PlaceTable(BaseModel):
    """A region of an account in which replicas may run."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    region: Region = Field(description="the region")
    account: AccountId | None = Field(default=None, description="the account; default: that of the stack")
    profile: Annotated[str, Field(min_length=1, max_length=128)] | None = Field(
        default=None,
        description="the AWS CLI's profile for the account on the machine that deploys; default: that of the stack",
    )
