"""The outposts of a stack: what a place has, by names that follow from the stack's. Pure.

The names are known before anything is deployed, so neither side waits for the other's: policies at home name the roles
of places that do not exist yet, and those of a place the roles of home.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from pydantic import Field

from muster.contract.aws.partitions import Locality
from muster.contract.document import StoredDocument, StoredPart
from muster.contract.names import PREFIX_MAX
from muster.contract.spec.places import PLACES_MAX, PlaceName

PARTITION = "aws"
"""Neither events nor roles cross the border of a partition, and the settings refuse places in any other."""
ENV_PLACES = "MUSTER_PLACES"
"""The variable with the `DeployedPlaces` of a stack; without places its functions have none."""
HOME_BUCKET = "HomeBucket"
"""The parameter of an outpost's template with the name of the stack's own bucket, which CloudFormation may have chosen.
"""
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


class Place(StoredPart):
    """Where a place is."""

    name: PlaceName
    region: str
    account: str


def outpost(stack: str, job_prefix: str, partition: str, place: Place) -> Outpost:
    """What the stack `stack` has in `place`."""

    def role(kind: str) -> str:
        return f"arn:{partition}:iam::{place.account}:role/{role_name(stack, place.name, kind)}"

    return Outpost(
        name=place.name,
        region=place.region,
        account=place.account,
        bucket=_cut(f"{job_prefix.lower()}-{place.name}-{place.account}-{place.region}", "", BUCKET_NAME_MAX),
        launcher_role_arn=role("launcher"),
        replica_role_arn=role("replica"),
        external_id=f"{stack}/{job_prefix}/{place.name}",
    )


def outpost_stack(stack: str, name: str) -> str:
    """The name of the CloudFormation stack of the place `name`."""
    return f"{stack}-{name}"


def home_arn(home: Locality, stack: str) -> str:
    """The stack to which an outpost belongs, as its output `Home` says it."""
    return f"{home.arn('cloudformation')}:stack/{stack}"


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


class DeployedPlaces(StoredDocument):
    """The places of a stack, as its functions and clients know them."""

    stack: str
    job_prefix: str = Field(max_length=PREFIX_MAX)
    places: tuple[Place, ...] = Field(max_length=PLACES_MAX)

    def outposts(self, partition: str) -> dict[str, Outpost]:
        """What is in each place, by its name."""
        return {place.name: outpost(self.stack, self.job_prefix, partition, place) for place in self.places}
