"""SimulatePrincipalPolicy, by the evaluator that also decides about requests.

MiniStack's own simulation looks at the first resource only, ignores the context entries and the permissions boundary,
and evaluates every request as if it came over plain HTTP. This one covers a role or a user: its policies and its
boundary. Resource policies, session policies and the policies of an organization are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from xml.sax.saxutils import escape

from ministack.core import iam_evaluator, responses
from ministack.services import iam

_DECISIONS = {"Allow": "allowed", "Deny": "explicitDeny"}
_Request = Mapping[str, list[str] | str]


def simulate(request: _Request) -> tuple[int, dict[str, str], bytes]:
    """The answer to SimulatePrincipalPolicy: one result for each action on each resource."""
    arn = _one(request, "PolicySourceArn")
    fields = arn.split(":", 5)
    account = responses.get_account_id()
    kind, _, path = (fields[5] if len(fields) == 6 else "").partition("/")
    name = path.rpartition("/")[2]
    store = {"role": iam._roles, "user": iam._users}.get(kind)
    if store is None or store.get_scoped(account, None, name) is None:
        missing: tuple[int, dict[str, str], bytes] = iam._error(
            404, "NoSuchEntity", f"The principal {arn} cannot be found.", ns="iam"
        )
        return missing
    gather = iam_evaluator._gather_role_policies if kind == "role" else iam_evaluator._gather_user_policies
    limits = iam_evaluator._permissions_boundary(store, name, account)
    context = dict(_context(request))
    results = []
    for action in _members(request, "ActionNames.member"):
        for resource in list(_members(request, "ResourceArns.member")) or ["*"]:
            found = iam_evaluator.EvalContext(
                principal_arn=arn,
                principal_type="AssumedRole" if kind == "role" else "User",
                principal_account=account,
                action=action,
                resource_arn=resource,
                region=responses.get_region(),
                source_ip="127.0.0.1",
                secure_transport=True,
                service_context=context,
                principal_keys={key: value for key, value in context.items() if key.startswith("aws:principaltag/")},
            )
            decision = iam_evaluator.evaluate(found, gather(name, account), *limits).decision
            results.append(_result(action, resource, _DECISIONS.get(decision, "implicitDeny")))
    answer: tuple[int, dict[str, str], bytes] = iam._xml(
        200,
        "SimulatePrincipalPolicyResponse",
        f"<SimulatePrincipalPolicyResult><EvaluationResults>{''.join(results)}</EvaluationResults>"
        "<IsTruncated>false</IsTruncated></SimulatePrincipalPolicyResult>",
        ns="iam",
    )
    return answer


def _result(action: str, resource: str, decision: str) -> str:
    return (
        f"<member><EvalActionName>{escape(action)}</EvalActionName>"
        f"<EvalResourceName>{escape(resource)}</EvalResourceName><EvalDecision>{decision}</EvalDecision>"
        "<MatchedStatements></MatchedStatements><MissingContextValues></MissingContextValues></member>"
    )


def _context(request: _Request) -> Iterator[tuple[str, str | list[str]]]:
    number = 1
    while key := _one(request, f"ContextEntries.member.{number}.ContextKeyName"):
        values = list(_members(request, f"ContextEntries.member.{number}.ContextKeyValues.member"))
        yield key.lower(), values[0] if len(values) == 1 else values
        number += 1


def _members(request: _Request, name: str) -> Iterator[str]:
    number = 1
    while value := _one(request, f"{name}.{number}"):
        yield value
        number += 1


def _one(request: _Request, name: str) -> str:
    found = iam._p(request, name)
    return str(found or "")
