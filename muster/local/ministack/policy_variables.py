"""Variables in policies: `${aws:PrincipalTag/team}` in a Resource or a Condition.

MiniStack's evaluator takes them literally. By IAM's documentation (*IAM policy elements: variables and tags*) they
are replaced in documents of version 2012-10-17, a default may follow the key, a statement whose variable has no value
matches nothing, and a `*` in a value is no wildcard.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from ministack.core import iam_evaluator
from ministack.core.iam_evaluator import EvalContext, ParsedStatement

from muster.local.ministack.host import listed

_VERSION = "2012-10-17"
# A variable's first character in the texts of a document that has variables.
_MARK = "\ue002"
_VARIABLE = re.compile(rf"{_MARK}\{{([^}}]*)\}}")
_DEFAULT = re.compile(r"([^,]+),\s*'(.*)'")
# `${*}` and so on stand for the characters themselves.
_CHARACTERS = frozenset("*?$")
# Wildcards that come from a value, until a pattern is compiled.
_MASKS = {"*": "\ue000", "?": "\ue001"}
_DOCUMENTS_KEPT = 512


class _UnresolvedError(Exception):
    """A variable has no value in this request."""


def install() -> None:
    """Let MiniStack's evaluator replace variables."""
    iam_evaluator._fnmatch_compile = partial(_compile, iam_evaluator._fnmatch_compile)
    iam_evaluator.parse_policy_document = partial(_parse, iam_evaluator.parse_policy_document)
    iam_evaluator.evaluate_resource_policy = partial(_evaluate, iam_evaluator.evaluate_resource_policy)
    iam_evaluator.evaluate_trust_policy = partial(_evaluate, iam_evaluator.evaluate_trust_policy)
    iam_evaluator._first_match = partial(_first_match, iam_evaluator._first_match)
    iam_evaluator._conditions_met = partial(_conditions_met, iam_evaluator._conditions_met)


def _compile(compiled: Callable[..., re.Pattern[str]], pattern: str, ignore_case: bool) -> re.Pattern[str]:
    made = compiled(pattern, ignore_case)
    text = made.pattern
    for character, mask in _MASKS.items():
        text = text.replace(mask, re.escape(character))
    return made if text == made.pattern else re.compile(text, made.flags)


_Parse = Callable[[object], list[ParsedStatement]]


def _parse(parse: _Parse, document: object) -> list[ParsedStatement]:
    return [*_parsed(parse, document if isinstance(document, str) else json.dumps(document))]


@lru_cache(_DOCUMENTS_KEPT)
def _parsed(parse: _Parse, text: str) -> tuple[ParsedStatement, ...]:
    """Every request is checked against all policies of its caller, several times: their text is the same each time."""
    return tuple(parse(_marked(text)))


def _evaluate(evaluate: Callable[..., Any], document: object, /, *rest: Any, **named: Any) -> Any:
    return evaluate(_marked(document), *rest, **named)


def _marked(document: object) -> object:
    """The document with a mark in the place of each variable's `$`; as it is where its version has no variables."""
    try:
        loaded = json.loads(document) if isinstance(document, str) else document
    except ValueError:
        return document
    if not isinstance(loaded, dict) or loaded.get("Version") != _VERSION:
        return document
    marked: object = json.loads(json.dumps(loaded).replace("${", f"{_MARK}{{"))
    return marked


def _first_match(
    match: Callable[..., ParsedStatement | None],
    context: EvalContext,
    statements: Sequence[ParsedStatement],
    effect: str,
) -> ParsedStatement | None:
    resolved = []
    for statement in (one for one in statements if one.effect == effect):
        try:
            own, others = _patterns(statement.resources, context), _patterns(statement.not_resources, context)
        except _UnresolvedError:
            continue
        resolved.append(replace(statement, resources=own, not_resources=others))
    return match(context, resolved, effect)


def _conditions_met(met: Callable[..., bool], conditions: Mapping[str, Any] | None, context: EvalContext) -> bool:
    blocks = {operator: keys for operator, keys in (conditions or {}).items() if isinstance(keys, dict)}
    try:
        return met({operator: _values(operator, keys, context) for operator, keys in blocks.items()}, context)
    except _UnresolvedError:
        return False


def _values(operator: str, keys: Mapping[str, Any], context: EvalContext) -> dict[str, list[str]]:
    replaced = _patterns if "like" in operator.lower() or "arn" in operator.lower() else _texts
    return {key: replaced(map(str, listed(expected)), context) for key, expected in keys.items()}


def _patterns(texts: Iterable[str], context: EvalContext) -> list[str]:
    """The texts, in which values from variables have no wildcards."""

    def literal(found: re.Match[str]) -> str:
        value = _value(found, context)
        for character, mask in _MASKS.items():
            value = value.replace(character, mask)
        return value

    return [_VARIABLE.sub(literal, text) for text in texts]


def _texts(texts: Iterable[str], context: EvalContext) -> list[str]:
    return [_VARIABLE.sub(lambda found: _value(found, context), text) for text in texts]


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
