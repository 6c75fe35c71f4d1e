"""ARNs of another partition or region are refused where AWS refuses them; MiniStack takes most of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ministack.core import iam_evaluator, responses
from ministack.services import eventbridge, scheduler, sts

from muster.local.ministack.host import Account, Response, listed, refusal


def install(account: Account) -> None:
    """Check ARNs in rules, schedules and policies."""
    eventbridge._validate_target_arn = partial(_validate_target, eventbridge._validate_target_arn, account)
    scheduler._create_schedule = partial(_create_schedule, scheduler._create_schedule, account)
    iam_evaluator.validate_policy_document = partial(_validate_policy, iam_evaluator.validate_policy_document, account)
    sts.validate_policy_document = iam_evaluator.validate_policy_document  # bound by name there


def foreign(arn: str, account: Account) -> str | None:
    """Why a resource is out of reach: its ARN names another partition, or region than the request's.

    None if it is not.
    """
    parts, region = arn.split(":", 5), responses.get_region()
    if len(parts) < 6:
        return None
    if parts[1] != account.partition:
        return f"the partition is '{account.partition}', not '{parts[1]}'"
    # Events alone cross regions, from bus to bus.
    if parts[3] and parts[3] != region and parts[2] != "events":
        return f"the region is '{region}', not '{parts[3]}'"
    return None


def _validate_target(
    validate: Callable[..., Response | None], account: Account, target: dict[str, Any]
) -> Response | None:
    arn = str(target.get("Arn", ""))
    if reason := foreign(arn, account):
        return refusal("ValidationException", f"Parameter {arn} is not valid. Reason: {reason}.")
    return validate(target)


def _create_schedule(create: Callable[..., Response], account: Account, name: str, body: dict[str, Any]) -> Response:
    target = body.get("Target") or {}
    for arn in (str(target.get("Arn", "")), str(target.get("RoleArn", ""))):
        reason = foreign(arn, account) if arn.startswith("arn:") else "it is no ARN"
        if reason:
            message = f"Provided Arn is not valid: {arn}. Reason: {reason}."
            refused: Response = scheduler._error(400, "ValidationException", message)
            return refused
    return create(name, body)


def _validate_policy(validate: Callable[[object], str | None], account: Account, document: object) -> str | None:
    if problem := validate(document):
        return problem
    for arn in _resources(json.loads(document) if isinstance(document, str) else document):
        partition = arn.split(":")[1] if arn.startswith("arn:") and arn.count(":") > 1 else account.partition
        if partition != account.partition and "*" not in partition:
            return f'Partition "{partition}" is not valid for resource "{arn}".'
    return None


def _resources(document: Any) -> Iterator[str]:
    for statement in listed(document["Statement"]):
        for name in ("Resource", "NotResource"):
            yield from map(str, listed(statement.get(name, [])))
