"""Whether a bucket's policy refuses a request. Pure; knows the conditions that Muster's policies use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

Policy = Mapping[str, Any]


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return float("nan")


_OPERATORS: dict[str, Callable[[str | None, str], bool]] = {
    "Bool": lambda found, wanted: found is not None and found.lower() == wanted.lower(),
    "Null": lambda found, wanted: (found is None) == (wanted.lower() == "true"),
    "NumericLessThan": lambda found, wanted: found is not None and _number(found) < _number(wanted),
    "StringEquals": lambda found, wanted: found == wanted,
    "StringNotEquals": lambda found, wanted: found != wanted,
}


def refuses(policy: Policy, action: str, arn: str, context: Mapping[str, str]) -> bool:
    """Whether `policy` denies everybody `action` on the resource `arn`.

    `context` holds the condition keys of the request in lower case; a key that is not in it is absent. A statement with
    a condition that is not known here does not count.
    """
    return any(
        statement.get("Effect") == "Deny"
        and _is_everybody(statement.get("Principal"))
        and any(fnmatchcase(action.lower(), pattern.lower()) for pattern in _many(statement.get("Action")))
        and any(fnmatchcase(arn, pattern) for pattern in _many(statement.get("Resource")))
        and _holds(statement.get("Condition", {}), context)
        for statement in _statements(policy)
    )


def _statements(policy: Policy) -> list[Mapping[str, Any]]:
    found = policy.get("Statement", [])
    return [found] if isinstance(found, Mapping) else list(found)


def _is_everybody(principal: Any) -> bool:
    return principal == "*" or (isinstance(principal, Mapping) and "*" in _many(principal.get("AWS")))


def _holds(conditions: Mapping[str, Mapping[str, Any]], context: Mapping[str, str]) -> bool:
    return all(
        operator in _OPERATORS
        and any(_OPERATORS[operator](context.get(key.lower()), _text(wanted)) for wanted in _many(wanteds))
        for operator, keys in conditions.items()
        for key, wanteds in keys.items()
    )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _many(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
