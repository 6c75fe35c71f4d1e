"""What crosses the border between home and its places, stated once for both sides.

Across accounts both must allow: the policy of the role that asks, and the bucket's, the bus's or the role's own. No
statement names a role of the other account as its principal, which AWS would refuse while that role does not exist:
each names the account, with the role as a condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from aws_cdk import aws_iam as iam

from muster.contract.aws.partitions import Locality
from muster.contract.errors import ConfigurationError
from muster.contract.layout import MODEL_FOLDER
from muster.contract.run.notices import NOTICES
from muster.contract.run.session_tags import TAG_LINEAGE, TAG_RUN, principal_tag
from muster.infra.policy import Statement, Target, read, write
from muster.infra.settings.stack_settings import StackSettings
from muster.options.places.contract.outposts import PARTITION, DeployedPlaces, Outpost, Place

LAUNCHES = "attempt"
"""The function that creates jobs, in sessions with the tags of a run."""
LOOKS_AFTER = ("react", "settle", "stop", "sweep", "timer", "scale")
"""Those that look after jobs, in sessions without tags."""
# CloudFormation calls a role `{stack}-{logical id}-{12 characters}`, and cuts both where that is too long for IAM.
_STACK_UNCUT, _STACK_CUT = 24, 20


def home_of(settings: StackSettings) -> Locality:
    """Where the stack is. `muster deploy` takes it from the credentials.

    Raises:
        ConfigurationError: the settings do not say it.
    """
    account, region = settings.stack.account, settings.stack.region
    if account is None or region is None:
        message = "A stack with [places] names itself in them: set account and region under [stack] in muster.toml."
        raise ConfigurationError(message)
    return Locality(PARTITION, region, account)


def deployed_places(settings: StackSettings) -> DeployedPlaces:
    """The places of the settings, as functions and clients know them."""
    home = home_of(settings)
    places = tuple(
        Place(name=name, region=table.region, account=table.account or home.account)
        for name, table in sorted(settings.places.items())
    )
    return DeployedPlaces(stack=settings.stack.name, job_prefix=settings.job_prefix, places=places)


def outposts_of(settings: StackSettings) -> list[Outpost]:
    """What is in the places of the settings."""
    return [*deployed_places(settings).outposts(PARTITION).values()]


def other_accounts(settings: StackSettings) -> Iterator[tuple[str, list[Outpost]]]:
    """The outposts outside the account of home, by their accounts."""
    home = home_of(settings).account
    outside = sorted((one for one in outposts_of(settings) if one.account != home), key=lambda one: one.account)
    for account, group in groupby(outside, lambda one: one.account):
        yield account, [*group]


def statements_at_home() -> Sequence[Statement]:
    """What a replica in a place may do in the bucket at home: read its run document, meet the others, write the model.

    As at home, the tags of the session say which run it is of. Nothing else is allowed.
    """
    lineage, run = principal_tag(TAG_LINEAGE), principal_tag(TAG_RUN)
    rendezvous, output = f"rendezvous/{lineage}/*", f"output/{run}/"
    model = f"{output}{MODEL_FOLDER.rstrip('/')}*"
    # The folder of what may not exist is listed: see the replica role at home.
    listed = {"StringLike": {"s3:prefix": [rendezvous, f"{output}*"]}}
    return (
        read(f"runs/{run}/*"),
        Statement(("s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject"), Target.OBJECTS, (rendezvous, model)),
        Statement(("s3:DeleteObject",), Target.OBJECTS, (rendezvous,)),
        write(f"{NOTICES}{run}/*"),
        Statement(("s3:ListBucket",), Target.BUCKET, conditions=listed),
    )


def bucket_statements(settings: StackSettings, bucket_arn: str) -> list[iam.PolicyStatement]:
    """The same, in the policy of that bucket, for the replica roles of other accounts."""
    arns = {Target.OBJECTS: [bucket_arn], Target.BUCKET: [bucket_arn]}
    return [
        iam.PolicyStatement(
            sid=f"PlacesOf{account}N{number}",
            principals=[iam.AccountPrincipal(account)],
            actions=list(statement.actions),
            resources=statement.resources(arns),
            conditions={
                **statement.conditions,
                "ArnEquals": {"aws:PrincipalArn": [one.replica_role_arn for one in outposts]},
            },
        )
        for account, outposts in other_accounts(settings)
        for number, statement in enumerate(statements_at_home(), start=1)
    ]


def role_patterns(home: Locality, stack: str, functions: Sequence[str]) -> list[str]:
    """The roles of functions of the stack at home, whose names CloudFormation completes."""
    head = stack if len(stack) <= _STACK_UNCUT else f"{stack[:_STACK_CUT]}*"
    begin = f"arn:{home.partition}:iam::{home.account}:role/{head}"
    return [f"{begin}-{name.capitalize()}HandlerRole*" for name in functions]
