"""Every role's permissions, as IAM simulates them: policies, permissions boundaries and the organization's policies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from muster.client.verify.asking import allowed, statement_text
from muster.client.verify.permission_cases import REPLICA, Case, needed, replica_denials, replica_needs
from muster.client.verify.services import Account
from muster.client.verify.verification import Check, judged

ROLE, DENIALS = "permissions", "permissions-denied-to-replicas"

# The rate is IAM's, for the whole account; more calls at once would only be throttled.
_PARALLEL = 4
_SHOWN_MAX = 5


@dataclass(frozen=True)
class Decision:
    """What IAM decides about one action on one resource."""

    action: str
    resource: str
    decision: str
    """`allowed`, `implicitDeny`, `explicitDeny`."""

    @property
    def allowed(self) -> bool:
        """Whether the request would be allowed."""
        return self.decision == "allowed"


Simulated = tuple[tuple[Case, tuple[Decision, ...]], ...]


def gather_permissions(account: Account) -> Simulated:
    """One or more calls for each statement of each role."""
    statements = list(account.template.statements())
    role = account.cloud.stack.role_arn
    own_role = any(statement.role == REPLICA for statement in statements)
    bucket = f"arn:{account.identity.partition}:s3:::{account.cloud.stack.bucket}"
    cases = [*needed(statements), *replica_needs(role, bucket), *replica_denials(role, bucket, own_role=own_role)]
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
        with allowed("iam:SimulatePrincipalPolicy", case.role_arn):
            pages = iam.get_paginator("simulate_principal_policy").paginate(
                PolicySourceArn=case.role_arn,
                ActionNames=list(case.actions),
                ResourceArns=list(case.resources),
                ContextEntries=entries,  # type: ignore[arg-type]
            )
            return tuple(
                Decision(item["EvalActionName"], item.get("EvalResourceName", "*"), item["EvalDecision"])
                for page in pages
                for item in page["EvaluationResults"]
            )

    with ThreadPoolExecutor(max_workers=_PARALLEL) as pool:
        return tuple(zip(cases, pool.map(simulate, cases), strict=True))


def judge_permissions(simulated: Simulated) -> Iterator[Check]:
    """One check for each role, then one for what replicas must be denied."""
    roles = dict.fromkeys(case.role for case, _ in simulated if case.allowed)
    for role in roles:
        yield _allowed(role, [(case, found) for case, found in simulated if case.allowed and case.role == role])
    yield _denied([(case, found) for case, found in simulated if not case.allowed])


def _allowed(role: str, cases: Sequence[tuple[Case, Iterable[Decision]]]) -> Check:
    missing: list[str] = []
    statements: list[str] = []
    for case, decisions in cases:
        refused = [decision for decision in decisions if not decision.allowed]
        missing += [f"{item.action} on {item.resource} ({item.decision})" for item in refused]
        if refused:
            resources = case.resources if case.statement is None else case.statement.resources
            conditions = None if case.statement is None else case.statement.conditions
            statements.append(statement_text(sorted({item.action for item in refused}), resources, conditions))
    count = sum(len(case.actions) * len(case.resources) for case, _ in cases)
    problems = [f"the role {role} may not {_listed(missing)}"] if missing else []
    seen = f"the role {role} is allowed all {count} requests that it needs."
    remedy = " ".join(
        ["Deploy the stack again, or add to the role (or to what limits it):", *dict.fromkeys(statements)]
    )
    return judged(f"{ROLE}-{role.lower()}", problems, seen, remedy)


def _denied(cases: Sequence[tuple[Case, Iterable[Decision]]]) -> Check:
    decisions = [decision for _, found in cases for decision in found]
    open_ = [f"{item.action} on {item.resource}" for item in decisions if item.allowed]
    problems = [f"the role of the replicas may {_listed(open_)}"] if open_ else []
    seen = f"the role {REPLICA} is denied all {len(decisions)} requests that user code must not make."
    remedy = "Remove the permission from the role: task tokens and other runs' data would be open to user code."
    return judged(DENIALS, problems, seen, remedy)


def _listed(items: Sequence[str]) -> str:
    more = f" and {len(items) - _SHOWN_MAX} more" if len(items) > _SHOWN_MAX else ""
    return ", ".join(items[:_SHOWN_MAX]) + more
