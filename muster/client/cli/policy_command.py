"""`muster policy`."""

from __future__ import annotations

import json as encoder
from typing import Annotated

import typer

from muster.client.cli.json_answers import UserPolicy
from muster.client.cli.option_groups import Json, StackOptions, grouped
from muster.client.cli.output import busy, print_answer, print_text


@grouped
def policy(
    stack: StackOptions,
    *,
    deployer: Annotated[
        bool, typer.Option("--deployer", help="Of who calls `muster deploy`; needs no stack, only credentials.")
    ] = False,
    json: Json = False,
) -> None:
    """Print the IAM policy that a user of the stack needs to start, watch and end runs. Creates nothing."""
    from muster.client.aws.connection import caller_place  # noqa: PLC0415
    from muster.client.aws.user_policy import deployer_policy, user_policy  # noqa: PLC0415

    if deployer:
        with busy("Asking whose credentials these are"):
            found = deployer_policy(caller_place(stack.account().session()))
    else:
        with busy("Reading the stack"):
            found = user_policy(stack.muster()._cloud.stack)
    if json:
        print_answer(UserPolicy(policy=found))
    else:
        print_text(encoder.dumps(found, indent=2))
