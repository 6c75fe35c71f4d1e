"""The outposts of the stack, as `muster verify` checks them: whether each is there, whose it is, and how old."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from muster.client.aws.connection import CONFIG
from muster.client.aws.deployed_stack import outputs_of
from muster.client.aws.error_translation import error_code
from muster.client.client_errors import ClientError
from muster.contract.aws.partitions import Locality
from muster.options.places.client.place_session import PlaceSession, local_places
from muster.options.places.contract.outposts import PARTITION, DeployedPlaces, Outpost, home_arn, outpost_stack
from muster.options.verify.client.check_outcomes import Check, judged
from muster.options.verify.client.verified_stack import Account, FreeChecks, OfferedChecks, UncheckedError

OUTPUT = "Places"


def outpost_problems(found: Mapping[str, str], one: Outpost, known: Mapping[str, str]) -> dict[str, object]:
    """What is wrong with an outpost that has the outputs `found`; `known` are those of the same names that it should
    have."""
    words = {
        "Home": "it belongs to {}, and not to {}",
        "JobPrefix": "it takes jobs with the prefix {} alone, and the stack's is {}",
        "ExternalId": "it asks for the external id {}, and the stack's functions state {}",
        "BucketName": "its bucket is {}, and the stack looks for {}",
        "Version": "it is of version {}, and the stack of {}",
    }
    wanted = {**known, "ExternalId": one.external_id, "BucketName": one.bucket}
    return {
        text.format(found.get(key, "unknown"), wanted[key]): found.get(key) != wanted[key]
        for key, text in words.items()
    }


def _check(name: str, one: Outpost, account: Account) -> Iterator[Check]:
    stack = outpost_stack(account.cloud.stack.name, one.name)
    caller = account.identity["Account"]
    if one.account != caller:
        reason = f"{one.name} is in account {one.account}, and these credentials are of {caller}."
        query = "--query 'Stacks[0].Outputs'"
        command = f"aws cloudformation describe-stacks --stack-name {stack} --region {one.region} {query}"
        raise UncheckedError(reason, f"With credentials of that account: {command}")
    found = _described(account, stack, one)
    home = home_arn(Locality(account.partition, account.region, caller), account.cloud.stack.name)
    known = {"Home": home, "JobPrefix": account.cloud.stack.job_prefix, "Version": account.output("Version")}
    problems = (
        {f"there is no stack {stack} in {one.region}": True}
        if found is None
        else outpost_problems(outputs_of(found), one, known)
    )
    yield judged(name, f"{stack} in {one.region} is the stack's, and of its version.", problems, "Run `muster deploy`.")


def _described(account: Account, stack: str, one: Outpost) -> Any:
    """What CloudFormation says of the outpost; None where there is none."""
    # The AWS CLI takes the default profile where there is one, and needs none.
    profile = account.session.profile_name if account.session.profile_name != "default" else None
    session = PlaceSession(profile, one.region, local_places(os.environ).get(one.name))
    client = session.client("cloudformation", config=CONFIG)
    try:
        return account.answer("cloudformation", lambda: client.describe_stacks(StackName=stack)["Stacks"][0])
    except ClientError as error:
        # DescribeStacks answers a stack that does not exist with this general code.
        cause: Any = error.__cause__
        if cause is None or error_code(cause) != "ValidationError":
            raise
        return None


def _of_places(account: Account) -> FreeChecks:
    text = account.cloud.stack.places
    outposts = {} if not text else DeployedPlaces.from_json(text, f"the output {OUTPUT}").outposts(PARTITION)
    return {(name,): partial(_check, name, one) for place, one in outposts.items() for name in [f"place-{place}"]}


OFFER = OfferedChecks(_of_places)
