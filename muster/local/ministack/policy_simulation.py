"""SimulatePrincipalPolicy, by the evaluator that also decides about requests.

MiniStack's own simulation looks at the first resource only, ignores the context entries and the permissions boundary,
and evaluates every request as if it came over plain HTTP. This one covers a role or a user: its policies and its
boundary. Resource policies, session policies and the policies of an organization are left out.

As on AWS, a condition key has the value that the request gives it, or none: the simulation knows no caller, no
connection and no account of a bucket. Keys that were needed and not given are reported. AWS refuses actions that need
different information in one call and does not publish which; here those of different services do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from xml.sax.saxutils import escape

from ministack.core import iam_evaluator, responses
from ministack.services import iam

from muster.local.ministack.host import Response

_DECISIONS = {"Allow": "allowed", "Deny": "explicitDeny"}
# The top-level decision about several resources is the most restrictive one.
_STRICTEST = ("explicitDeny", "implicitDeny", "allowed")
_Request = Mapping[str, list[str] | str]


@dataclass
class _Simulated(iam_evaluator.EvalContext):  # type: ignore[misc]  # MiniStack has no types
    """A request that was never made: only the keys of `service_context` have a value."""

    missing: dict[str, None] = field(default_factory=dict)
    """Keys that a policy asked for and that were not given."""


@dataclass(frozen=True)
class _Result:
    """What was decided about one action on one resource."""

    resource: str
    decision: str
    missing: tuple[str, ...]


def install() -> None:
    """Let MiniStack answer SimulatePrincipalPolicy with `simulate`."""
    iam_evaluator._resolve_condition_key = partial(_resolve_key, iam_evaluator._resolve_condition_key)
    iam._IAM_HANDLERS["SimulatePrincipalPolicy"] = simulate


def _resolve_key(resolve: Callable[..., object], key: str, context: iam_evaluator.EvalContext) -> object:
    if not isinstance(context, _Simulated):
        return resolve(key, context)
    found: object = context.service_context.get(key.lower())
    if found is None:
        context.missing[key] = None
    return found


def simulate(request: _Request) -> Response:
    """The answer to SimulatePrincipalPolicy: one result for each action, with a result for each resource in it."""
    arn = _one(request, "PolicySourceArn")
    fields = arn.split(":", 5)
    account = responses.get_account_id()
    kind, _, path = (fields[5] if len(fields) == 6 else "").partition("/")
    name = path.rpartition("/")[2]
    store = {"role": iam._roles, "user": iam._users}.get(kind)
    if store is None or store.get_scoped(account, None, name) is None:
        return _refused(404, "NoSuchEntity", f"The principal {arn} cannot be found.")
    actions = list(_members(request, "ActionNames.member"))
    if len({action.partition(":")[0] for action in actions}) > 1:
        text = f"Invalid Input Actions: [{','.join(actions)}] require different authorization information."
        return _refused(400, "InvalidInput", text)
    gather = iam_evaluator._gather_role_policies if kind == "role" else iam_evaluator._gather_user_policies
    limits = iam_evaluator._permissions_boundary(store, name, account)
    given = dict(_context(request))

    def decided(action: str, resource: str) -> _Result:
        context = _Simulated(
            principal_arn=arn,
            principal_type="AssumedRole" if kind == "role" else "User",
            principal_account=account,
            action=action,
            resource_arn=resource,
            region=responses.get_region(),
            service_context=given,
        )
        decision = iam_evaluator.evaluate(context, gather(name, account), *limits).decision
        return _Result(resource, _DECISIONS.get(decision, "implicitDeny"), tuple(context.missing))

    resources = list(_members(request, "ResourceArns.member")) or ["*"]
    members = "".join(_member(action, [decided(action, resource) for resource in resources]) for action in actions)
    answer: Response = iam._xml(
        200,
        "SimulatePrincipalPolicyResponse",
        f"<SimulatePrincipalPolicyResult><EvaluationResults>{members}</EvaluationResults>"
        "<IsTruncated>false</IsTruncated></SimulatePrincipalPolicyResult>",
        ns="iam",
    )
    return answer


def _refused(status: int, code: str, message: str) -> Response:
    refused: Response = iam._error(status, code, message, ns="iam")
    return refused


def _member(action: str, results: list[_Result]) -> str:
    """One EvaluationResult. Where resources were named, its own resource is a pattern and its decision an aggregate."""
    decision = min((result.decision for result in results), key=_STRICTEST.index)
    named = [result for result in results if result.resource != "*"]
    missing = () if named else tuple(dict.fromkeys(chain.from_iterable(result.missing for result in results)))
    specific = "".join(
        f"<member><EvalResourceName>{escape(result.resource)}</EvalResourceName>"
        f"<EvalResourceDecision>{result.decision}</EvalResourceDecision>"
        f"<MatchedStatements></MatchedStatements>{_missing(result.missing)}</member>"
        for result in named
    )
    return (
        f"<member><EvalActionName>{escape(action)}</EvalActionName><EvalResourceName>*</EvalResourceName>"
        f"<EvalDecision>{decision}</EvalDecision><MatchedStatements></MatchedStatements>{_missing(missing)}"
        f"<ResourceSpecificResults>{specific}</ResourceSpecificResults></member>"
    )


def _missing(keys: tuple[str, ...]) -> str:
    return f"<MissingContextValues>{''.join(f'<member>{escape(key)}</member>' for key in keys)}</MissingContextValues>"


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
