"""Every role's permissions, as IAM simulates them: policies, permissions boundaries and the organization's policies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from muster.client.verify.asking import UncheckedError, allowed, statement_text
from muster.client.verify.permission_cases import REPLICA, Case, Site, needed, replica_denials, replica_needs
from muster.client.verify.services import Account
from muster.client.verify.verification import Check, judged, unchecked

ROLE, DENIALS = "permissions", "permissions-denied-to-replicas"

# The rate is IAM's, for the whole account; more calls at once would only be throttled.
_PARALLEL = 4
_SHOWN_MAX = 5
_CONDITIONS = "A policy beside the stack's own has these conditions: read it, and judge whether it applies."


@dataclass(frozen=True)
class Decision:
    """What IAM decides about one action on one resource."""

    action: str
    resource: str
    decision: str
    """`allowed`, `implicitDeny`, `explicitDeny`."""
    missing: tuple[str, ...] = ()
    """Condition keys that a policy asks for and the simulated request lacks, although a real one would have them."""

    @property
    def allowed(self) -> bool:
        """Whether the request would be allowed."""
        return self.decision == "allowed"

    @property
    def undecided(self) -> bool:
        """Whether a real request, which has the missing keys, could be allowed nevertheless."""
        return not self.allowed and bool(self.missing)


Simulated = tuple[tuple[Case, tuple[Decision, ...]], ...]


def gather_permissions(account: Account) -> Simulated:
    """One call for each action of each statement of each role."""
    statements, site = list(account.template.statements()), _site(account)
    cases = [*needed(statements), *replica_needs(site), *replica_denials(site, statements)]
    # The client is made before threads use it.
    iam = account.iam

    def simulate(case: Case) -> tuple[Decision, ...]:
        entries = [
            {
                "ContextKeyName": key,
                "ContextKeyValues": list(values),
                "ContextKeyType": "stringList" if len(values) > 1 else "string",
            }
            for key, values in case.context.items()
        ]
        found: list[Decision] = []
        # IAM refuses actions in one call that "require different authorization information", and publishes no list.
        for action in case.actions:
            with allowed("iam:SimulatePrincipalPolicy", case.role_arn):
                pages = iam.get_paginator("simulate_principal_policy").paginate(
                    PolicySourceArn=case.role_arn,
                    ActionNames=[action],
                    ResourceArns=list(case.resources),
                    ContextEntries=entries,  # type: ignore[arg-type]
                )
                found += [item for page in pages for result in page["EvaluationResults"] for item in decisions(result)]
        return tuple(
            replace(item, missing=tuple(key for key in item.missing if key.lower() not in case.absent))
            for item in found
        )

    with ThreadPoolExecutor(max_workers=_PARALLEL) as pool:
        return tuple(zip(cases, pool.map(simulate, cases), strict=True))


def decisions(result: Mapping[str, Any]) -> Iterator[Decision]:
    """The decisions in one member of EvaluationResults.

    The member itself is an aggregate: its resource is a pattern, and its decision is about all resources together.
    """
    action = result["EvalActionName"]
    for item in result.get("ResourceSpecificResults", ()):
        missing = tuple(item.get("MissingContextValues", ()))
        yield Decision(action, item["EvalResourceName"], item["EvalResourceDecision"], missing)
    if not result.get("ResourceSpecificResults"):
        missing = tuple(result.get("MissingContextValues", ()))
        yield Decision(action, result.get("EvalResourceName", "*"), result["EvalDecision"], missing)


def _site(account: Account) -> Site:
    def arn(kind: str, name: str) -> str:
        found = account.template.arns(kind)
        if name not in found:
            message = f"The stack has no {kind} {name}."
            raise UncheckedError(message, "Deploy the stack again.")
        return found[name]

    stack = account.cloud.stack
    return Site(
        partition=account.identity.partition,
        region=account.session.region_name,
        account=account.identity.account,
        bucket=stack.bucket,
        job_prefix=stack.job_prefix,
        role_arn=account.output("ReplicaRoleArn"),
        launcher_arn=arn("AWS::IAM::Role", "Launcher"),
        attempt_arn=arn("AWS::Lambda::Function", "Attempt"),
        bus_arn=arn("AWS::Events::EventBus", "EventsBus"),
        state_machine_arn=stack.state_machine_arn,
    )


def judge_permissions(simulated: Simulated) -> Iterator[Check]:
    """One check for each role, then one for what replicas must be denied."""
    roles = dict.fromkeys(case.role for case, _ in simulated if case.allowed)
    for role in roles:
        yield _allowed(role, [(case, found) for case, found in simulated if case.allowed and case.role == role])
    yield _denied([(case, found) for case, found in simulated if not case.allowed])


def _allowed(role: str, cases: Sequence[tuple[Case, Iterable[Decision]]]) -> Check:
    name = f"{ROLE}-{role.lower()}"
    missing: list[str] = []
    statements: list[str] = []
    for case, found in cases:
        refused = [decision for decision in found if not decision.allowed and not decision.undecided]
        missing += [f"{item.action} on {item.resource} ({item.decision})" for item in refused]
        if refused:
            resources = case.resources if case.statement is None else case.statement.resources
            conditions = None if case.statement is None else case.statement.conditions
            statements.append(statement_text(sorted({item.action for item in refused}), resources, conditions))
    count = sum(len(case.actions) * len(case.resources) for case, _ in cases)
    if not missing and (undecided := _undecided(cases)):
        return unchecked(name, undecided, _CONDITIONS)
    problems = [f"the role {role} may not {_listed(missing)}"] if missing else []
    seen = f"the role {role} is allowed all {count} requests that it needs."
    remedy = " ".join(
        ["Deploy the stack again, or add to the role (or to what limits it):", *dict.fromkeys(statements)]
    )
    return judged(name, problems, seen, remedy)


def _denied(cases: Sequence[tuple[Case, Iterable[Decision]]]) -> Check:
    found = [decision for _, of_case in cases for decision in of_case]
    open_ = [f"{item.action} on {item.resource}" for item in found if item.allowed]
    if not open_ and (undecided := _undecided(cases)):
        return unchecked(DENIALS, undecided, _CONDITIONS)
    problems = [f"the role of the replicas may {_listed(open_)}"] if open_ else []
    seen = f"the role {REPLICA} is denied all {len(found)} requests that user code must not make."
    remedy = "Remove the permission from the role: task tokens and other runs' data would be open to user code."
    return judged(DENIALS, problems, seen, remedy)


def _undecided(cases: Sequence[tuple[Case, Iterable[Decision]]]) -> str:
    """Which requests IAM could not decide about, and which keys it lacked; empty if there are none."""
    found = [decision for _, of_case in cases for decision in of_case if decision.undecided]
    if not found:
        return ""
    keys = ", ".join(sorted({key for decision in found for key in decision.missing}))
    requests = [f"{item.action} on {item.resource}" for item in found]
    return f"IAM denies {_listed(requests)}, but a policy asks for {keys}, which the simulated requests do not have."


def _listed(items: Sequence[str]) -> str:
    more = f" and {len(items) - _SHOWN_MAX} more" if len(items) > _SHOWN_MAX else ""
    return ", ".join(items[:_SHOWN_MAX]) + more
