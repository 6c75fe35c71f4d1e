"""The outposts of a stack: what a place has, by names that follow from the stack's. Pure.

The names are known before anything is deployed, so neither side waits for the other's: policies at home name the roles
of places that do not exist yet, and those of a place the roles of home.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import Field

from muster.contract.document import StoredDocument, StoredPart
from muster.contract.names import PREFIX_MAX
from muster.contract.spec.place_names import PLACES_MAX, PlaceName

ENV_PLACES = "MUSTER_PLACES"
"""The variable with the `DeployedPlaces` of a stack; without places its functions have none."""
ROLE_NAME_MAX = 64  # IAM: RoleName
BUCKET_NAME_MAX = 63  # S3: general purpose bucket naming rules
STATEMENT_ID_MAX = 64  # EventBridge: PutPermission, StatementId
_DIGEST_LENGTH = 8


@dataclass(frozen=True)
class Outpost:
    """A place of a stack, and what is there."""

    name: str
    region: str
    account: str
    bucket: str
    launcher_role_arn: str
    """Assumed by functions at home. The sessions of attempt have the tags of their run: they create its jobs, and put
    into the bucket what these read. Those of the others have none: they find and stop jobs, and read logs and outputs.
    """
    replica_role_arn: str
    external_id: str
    """What they state to assume it: the outpost of another stack takes none of them."""


def outpost(stack: str, job_prefix: str, partition: str, name: str, region: str, account: str) -> Outpost:
    """The place `name` of the stack `stack`."""

    def role(kind: str) -> str:
        return f"arn:{partition}:iam::{account}:role/{role_name(stack, name, kind)}"

    return Outpost(
        name=name,
        region=region,
        account=account,
        bucket=_cut(f"{job_prefix.lower()}-{name}-{account}-{region}", "", BUCKET_NAME_MAX),
        launcher_role_arn=role("launcher"),
        replica_role_arn=role("replica"),
        external_id=f"{stack}/{job_prefix}/{name}",
    )


def outpost_stack(stack: str, name: str) -> str:
    """The name of the CloudFormation stack of the place `name`."""
    return f"{stack}-{name}"


def role_name(stack: str, name: str, kind: str) -> str:
    """The name of a role of the place `name`."""
    return _cut(stack, f"-{name}-{kind}", ROLE_NAME_MAX)


def statement_id(stack: str, account: str) -> str:
    """The name of the statement that lets the events of another account in."""
    return _cut(stack, f"-{account}", STATEMENT_ID_MAX)


def _cut(head: str, tail: str, most: int) -> str:
    """Both, or as much of `head` as fits and a digest of all of it."""
    if len(head) + len(tail) <= most:
        return head + tail
    digest = hashlib.sha256(head.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{head[: most - len(tail) - _DIGEST_LENGTH - 1].rstrip('-')}-{digest}{tail}"


class Place(StoredPart):
    """Where a place is."""

    region: str
    account: str


class DeployedPlaces(StoredDocument):
    """The places of a stack, as its functions and clients know them."""

    stack: str
    job_prefix: str = Field(max_length=PREFIX_MAX)
    places: Mapping[PlaceName, Place] = Field(max_length=PLACES_MAX)

    def outposts(self, partition: str) -> dict[str, Outpost]:
        """What is in each place, by its name."""
        return {
            name: outpost(self.stack, self.job_prefix, partition, name, place.region, place.account)
            for name, place in sorted(self.places.items())
        }
