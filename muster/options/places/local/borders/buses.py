"""Event buses of other regions and accounts as targets of rules, and their policies.

MiniStack drops such events, takes any role for a target, and has no policy of a bus in a template. By EventBridge's
documentation (*Sending and receiving events between AWS accounts*, *between AWS Regions*) the rule's role must be
allowed to put events on the bus, a bus of another account must allow it, too, and an event that has come so is not
sent on to a third bus. It keeps the account and the region in which it arose.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ministack.core import iam_evaluator, responses
from ministack.core.arn import ArnParseError, parse_arn
from ministack.services import eventbridge
from ministack.services.cloudformation import provisioners

from muster.local.ministack.host import Account, Response, json_answer, refusal
from muster.local.ministack.role_sessions import RoleGrant, role_admits

_PRINCIPAL = "events.amazonaws.com"
_ACTION = "events:PutEvents"
_FOREIGN_ROLE = "Cross-account pass role is not allowed."
_FORWARDED = "_MusterForwarded"
_ACCOUNT = re.compile(r"\d{12}")
_log = logging.getLogger(__name__)

_Event = Mapping[str, Any]
Deliver = Callable[[Account, Account, Callable[[], None]], None]
"""Calls, once the way from one region of an account to another is open, on the loop that serves requests."""


@dataclass(frozen=True)
class _Bus:
    arn: str
    name: str
    account: Account


def install(deliver: Deliver) -> None:
    """Let rules send events to other buses."""
    eventbridge._invoke_target = partial(_invoke, eventbridge._invoke_target, deliver)
    eventbridge._validate_target_arn = partial(_validate, eventbridge._validate_target_arn)
    eventbridge._put_permission = _put_permission
    rules = provisioners._RESOURCE_HANDLERS["AWS::Events::Rule"]
    for operation, properties in (("create", 1), ("update", 2)):
        rules[operation] = partial(_provision, rules[operation], properties)
    provisioners._RESOURCE_HANDLERS["AWS::Events::EventBusPolicy"] = {
        "create": _create_policy,
        "update": _update_policy,
        "delete": _delete_policy,
    }


def _here() -> Account:
    return Account(responses.get_account_id(), responses.get_region())


def _foreign_bus(arn: str) -> _Bus | None:
    """The bus of another account or region that an ARN names."""
    try:
        spec = parse_arn(arn)
    except ArnParseError:
        return None
    kind, _, name = spec.resource.partition("/")
    there = Account(spec.account_id, spec.region)
    return _Bus(arn, name, there) if spec.service == "events" and kind == "event-bus" and there != _here() else None


def _invoke(
    invoke: Callable[..., None],
    deliver: Deliver,
    target: Mapping[str, Any],
    event: _Event,
    rule: Mapping[str, Any],
    *view: Any,
) -> None:
    bus = _foreign_bus(str(target.get("Arn", "")))
    if bus is None:
        invoke(target, event, rule, *view)
    elif event.get(_FORWARDED):
        _log.warning("The rule %s does not send an event on to %s: it came from another bus", rule["Arn"], bus.arn)
    else:
        source, role = _here(), str(target.get("RoleArn", ""))
        deliver(source, bus.account, lambda: _deliver(source, bus, role, rule, event))


def _deliver(source: Account, bus: _Bus, role: str, rule: Mapping[str, Any], event: _Event) -> None:
    if reason := _refusal(source, bus, role, rule, event):
        _log.warning("The rule %s cannot send an event to %s: %s", rule["Arn"], bus.arn, reason)
        return
    with responses.request_scope(bus.account.account_id, bus.account.region):
        if bus.name != "default" and bus.name not in eventbridge._event_buses:
            _log.warning("The rule %s cannot send an event to %s: there is no such bus", rule["Arn"], bus.arn)
            return
        received = {**event, "EventBusName": bus.name, _FORWARDED: True}
        received.pop("_DispatchPath", None)
        eventbridge._events_log_list().append(received)
        eventbridge._dispatch_event(received)
        eventbridge._archive_event(received)


def _refusal(source: Account, bus: _Bus, role: str, rule: Mapping[str, Any], event: _Event) -> str | None:
    """Why the rule's role may not put the event on the bus."""
    if not role_admits(source, RoleGrant(role), _PRINCIPAL, str(rule["Arn"])):
        return f"{role or 'no role'} cannot be assumed by {_PRINCIPAL}"
    name = role.rsplit("/", 1)[-1]
    context = iam_evaluator.EvalContext(
        principal_arn=f"arn:{source.partition}:sts::{source.account_id}:assumed-role/{name}/events",
        principal_type="AssumedRole",
        principal_account=source.account_id,
        action=_ACTION,
        resource_arn=bus.arn,
        region=bus.account.region,
        secure_transport=True,
        service_context={
            "events:source": str(event.get("Source", "")),
            "events:detail-type": str(event.get("DetailType", "")),
        },
    )
    identity = iam_evaluator.evaluate(context, iam_evaluator._gather_role_policies(name, source.account_id))
    there = bus.account
    policy = eventbridge._event_bus_policies.get_scoped(there.account_id, there.region, bus.name)
    combined = iam_evaluator.combine_resource_policy(identity, context, policy, there.account_id)
    if combined.decision == "Allow":
        return None
    who = "the role's policies" if identity.decision != "Allow" else "the policy of the bus"
    return f"{who} do not allow {_ACTION}"


# --- targets -----------------------------------------------------------------------------------


def _role_problem(target: Mapping[str, Any]) -> tuple[str, str] | None:
    """Code and message for a target whose role is missing or another account's."""
    role = str(target.get("RoleArn", ""))
    if _foreign_bus(str(target.get("Arn", ""))) is not None and not role:
        return "ValidationException", f"RoleArn is required for target {target.get('Arn')}."
    if role and role.split(":")[4:5] != [responses.get_account_id()]:
        return "AccessDeniedException", _FOREIGN_ROLE
    return None


def _validate(validate: Callable[..., Response | None], target: dict[str, Any]) -> Response | None:
    if problem := _role_problem(target):
        return refusal(*problem)
    return validate(target)


def _provision(provision: Callable[..., Any], properties: int, /, *arguments: Any, **options: Any) -> Any:
    for target in arguments[properties].get("Targets", []):
        if problem := _role_problem(target):
            raise ValueError(problem[1])
    return provision(*arguments, **options)


# --- policies of buses -------------------------------------------------------------------------


def _put_permission(request: Mapping[str, Any]) -> Response:
    """PutPermission, by a whole policy or by a statement for an account."""
    bus = str(request.get("EventBusName", "default"))
    if bus != "default" and bus not in eventbridge._event_buses:
        return refusal("ResourceNotFoundException", f"Event bus {bus} does not exist.")
    if "Policy" in request:
        try:
            policy = json.loads(request["Policy"])
        except ValueError:
            return refusal("ValidationException", "Provided value in parameter 'policy' is not valid JSON.")
        eventbridge._event_bus_policies[bus] = policy
        return json_answer({})
    principal = str(request.get("Principal", ""))
    if not _ACCOUNT.fullmatch(principal) and principal != "*":
        return refusal("ValidationException", "Provided value in parameter 'principal' is not valid.")
    if request.get("Action") != _ACTION:
        return refusal("ValidationException", "Provided value in parameter 'action' is not supported.")
    _put_statement(bus, str(request.get("StatementId", "")), _statement(bus, request))
    return json_answer({})


def _statement(bus: str, given: Mapping[str, Any]) -> dict[str, Any]:
    principal = given.get("Principal", "*")
    if isinstance(principal, str) and _ACCOUNT.fullmatch(principal):
        principal = {"AWS": f"arn:{_here().partition}:iam::{principal}:root"}
    statement = {
        "Effect": "Allow",
        "Principal": principal,
        "Action": given.get("Action", _ACTION),
        "Resource": _here().arn("events", f"event-bus/{bus}"),
    }
    condition = given.get("Condition")
    if condition and {"Type", "Key", "Value"} <= condition.keys():
        condition = {condition["Type"]: {condition["Key"]: condition["Value"]}}
    return {**statement, "Condition": condition} if condition else statement


def _put_statement(bus: str, name: str, statement: Mapping[str, Any]) -> None:
    policy = eventbridge._event_bus_policies.get(bus) or {"Version": "2012-10-17", "Statement": []}
    others = [one for one in policy["Statement"] if one.get("Sid") != name]
    eventbridge._event_bus_policies[bus] = {**policy, "Statement": [*others, {"Sid": name, **statement}]}


def _create_policy(_logical_id: str, properties: Mapping[str, Any], _stack: str) -> tuple[str, dict[str, str]]:
    bus, name = str(properties.get("EventBusName") or "default"), str(properties["StatementId"])
    if bus != "default" and bus not in eventbridge._event_buses:
        message = f"Event bus {bus} does not exist."
        raise ValueError(message)
    written = properties.get("Statement")
    _put_statement(bus, name, written if written else _statement(bus, properties))
    return f"{bus}|{name}", {}


def _update_policy(
    physical_id: str, old: Mapping[str, Any], new: Mapping[str, Any], stack: str
) -> tuple[str, dict[str, str]]:
    created = _create_policy("", new, stack)
    if created[0] != physical_id:
        _delete_policy(physical_id, old)
    return created


def _delete_policy(physical_id: str, _properties: Mapping[str, Any]) -> None:
    bus, _, name = physical_id.partition("|")
    policy = eventbridge._event_bus_policies.get(bus)
    if policy is not None:
        left = [one for one in policy["Statement"] if one.get("Sid") != name]
        eventbridge._event_bus_policies[bus] = {**policy, "Statement": left}
        if not left:
            eventbridge._event_bus_policies.pop(bus)
