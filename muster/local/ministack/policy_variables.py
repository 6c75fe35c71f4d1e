"""Variables in policies: `${aws:PrincipalTag/team}` in a Resource or a Condition.

MiniStack's evaluator takes them literally. By IAM's documentation (*IAM policy elements: variables and tags*) they
are replaced in documents of version 2012-10-17, a default may follow the key, a statement whose variable has no value
matches nothing, and a `*` in a value is no wildcard.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, wraps
from typing import Any

from ministack.core import iam_evaluator
from ministack.core.iam_evaluator import EvalContext, ParsedStatement

_VERSION = "2012-10-17"
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_DEFAULT = re.compile(r"([^,]+),\s*'(.*)'")
# `${*}` and so on stand for the characters themselves.
_CHARACTERS = frozenset("*?$")
# Wildcards that come from a value, until a pattern is compiled.
_MASKS = {"*": "\ue000", "?": "\ue001"}
_MARK = "variables"
_DOCUMENTS_KEPT = 512


class _UnresolvedError(Exception):
    """A variable has no value in this request."""


def install() -> None:
    """Let MiniStack's evaluator replace variables."""
    iam_evaluator._fnmatch_compile = _unmasking(iam_evaluator._fnmatch_compile)
    iam_evaluator.parse_policy_document = _marking(iam_evaluator.parse_policy_document)
    iam_evaluator._first_match = _resolving_statements(iam_evaluator._first_match)
    iam_evaluator.evaluate_resource_policy = _resolving_resource_policy(iam_evaluator.evaluate_resource_policy)
    iam_evaluator.evaluate_trust_policy = _resolving_trust_policy(iam_evaluator.evaluate_trust_policy)


def _unmasking(compiled: Callable[[str, bool], re.Pattern[str]]) -> Callable[[str, bool], re.Pattern[str]]:
    @wraps(compiled)
    def compile_pattern(pattern: str, ignore_case: bool) -> re.Pattern[str]:
        made = compiled(pattern, ignore_case)
        text = made.pattern
        for character, mask in _MASKS.items():
            text = text.replace(mask, re.escape(character))
        return made if text == made.pattern else re.compile(text, made.flags)

    return compile_pattern


def _marking(parse: Callable[[object], list[ParsedStatement]]) -> Callable[[object], list[ParsedStatement]]:
    """Note in each statement whether its document's version has variables. A document is parsed once.

    Every request is checked against all policies of its caller, several times: their text is the same each time.
    """

    @lru_cache(_DOCUMENTS_KEPT)
    def statements_of(text: str) -> tuple[ParsedStatement, ...]:
        statements = parse(text)
        marked = _has_variables(_loaded(text))
        for statement in statements:
            setattr(statement, _MARK, marked)
        return tuple(statements)

    @wraps(parse)
    def parsed(document: object) -> list[ParsedStatement]:
        return [*statements_of(document if isinstance(document, str) else json.dumps(document))]

    return parsed


def _resolving_statements(
    first_match: Callable[[EvalContext, Sequence[ParsedStatement], str], ParsedStatement | None],
) -> Callable[[EvalContext, Sequence[ParsedStatement], str], ParsedStatement | None]:
    @wraps(first_match)
    def matched(context: EvalContext, statements: Sequence[ParsedStatement], effect: str) -> ParsedStatement | None:
        found = (_statement(statement, context) for statement in statements if statement.effect == effect)
        return first_match(context, [statement for statement in found if statement is not None], effect)

    return matched


def _resolving_resource_policy(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(evaluate)
    def evaluated(document: object, context: EvalContext, *rest: Any, **named: Any) -> Any:
        return evaluate(_document(document, context), context, *rest, **named)

    return evaluated


def _resolving_trust_policy(evaluate: Callable[..., bool]) -> Callable[..., bool]:
    @wraps(evaluate)
    def evaluated(document: object, caller: str, context: EvalContext | None = None) -> bool:
        return evaluate(document if context is None else _document(document, context), caller, context)

    return evaluated


def _statement(statement: ParsedStatement, context: EvalContext) -> ParsedStatement | None:
    """A statement with values for its variables; None if one has none."""
    if not getattr(statement, _MARK, False):
        return statement
    try:
        return replace(
            statement,
            resources=[_pattern(text, context) for text in statement.resources],
            not_resources=[_pattern(text, context) for text in statement.not_resources],
            conditions=_conditions(statement.conditions, context),
        )
    except _UnresolvedError:
        return None


def _document(document: object, context: EvalContext) -> object:
    """A resource's or a role's policy with values for its variables, without the statements that have none."""
    loaded = _loaded(document)
    if not _has_variables(loaded):
        return document
    statements = loaded["Statement"] if isinstance(loaded.get("Statement"), list) else [loaded.get("Statement")]
    resolved = []
    for statement in statements:
        try:
            resolved.append(_raw_statement(statement, context))
        except _UnresolvedError:
            continue
    return {**loaded, "Statement": resolved}


def _raw_statement(statement: object, context: EvalContext) -> object:
    if not isinstance(statement, dict):
        return statement
    changed = dict(statement)
    for name in ("Resource", "NotResource"):
        if name in statement:
            values = statement[name] if isinstance(statement[name], list) else [statement[name]]
            changed[name] = [_pattern(str(text), context) for text in values]
    if "Condition" in statement:
        changed["Condition"] = _conditions(statement["Condition"], context)
    return changed


def _conditions(conditions: dict[str, Any], context: EvalContext) -> dict[str, Any]:
    resolved: dict[str, Any] = {}
    for operator, keys in conditions.items():
        replaced = _pattern if "like" in operator.lower() or "arn" in operator.lower() else _text
        resolved[operator] = {
            key: [replaced(str(value), context) for value in (expected if isinstance(expected, list) else [expected])]
            for key, expected in keys.items()
        }
    return resolved


def _pattern(text: str, context: EvalContext) -> str:
    """`text`, in which values from variables have no wildcards."""

    def literal(found: re.Match[str]) -> str:
        value = _value(found, context)
        for character, mask in _MASKS.items():
            value = value.replace(character, mask)
        return value

    return _VARIABLE.sub(literal, text)


def _text(text: str, context: EvalContext) -> str:
    return _VARIABLE.sub(lambda found: _value(found, context), text)


def _value(found: re.Match[str], context: EvalContext) -> str:
    if found[1] in _CHARACTERS:
        return found[1]
    with_default = _DEFAULT.fullmatch(found[1])
    value = iam_evaluator._resolve_condition_key(with_default[1] if with_default else found[1], context)
    if value is None and with_default:
        return with_default[2]
    # A key with several values is no value.
    if value is None or isinstance(value, list):
        raise _UnresolvedError
    return str(value)


def _loaded(document: object) -> dict[str, Any]:
    try:
        loaded = json.loads(document) if isinstance(document, str) else document
    except ValueError:
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _has_variables(document: dict[str, Any]) -> bool:
    return document.get("Version") == _VERSION and "${" in json.dumps(document)
