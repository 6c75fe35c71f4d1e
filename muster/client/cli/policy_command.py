"""`muster policy`."""

from __future__ import annotations

import json as encoder

from muster.client.cli.json_answers import UserPolicy
from muster.client.cli.option_groups import Json, StackOptions, grouped
from muster.client.cli.output import busy, print_answer, print_text


@grouped
def policy(stack: StackOptions, *, json: Json = False) -> None:
    """Print the IAM policy that a user of the stack needs to start, watch and end runs. Creates nothing."""
    from muster.client.aws.user_policy import user_policy  # noqa: PLC0415

    with busy("Reading the stack"):
        found = user_policy(stack.muster()._cloud.stack)
    if json:
        print_answer(UserPolicy(policy=found))
    else:
        print_text(encoder.dumps(found, indent=2))
