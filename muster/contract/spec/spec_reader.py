"""Reading a spec, with every problem at once and in the user's own terms."""

from __future__ import annotations

import difflib
import math
import re
from collections import deque
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from muster.contract.aws.failures import FailureClass
from muster.contract.errors import Problem, SpecError
from muster.contract.names import REPLICAS_MAX
from muster.contract.spec.spec import (
    DEFAULT_BUDGETS,
    DEPTH_MAX,
    SPEC_BYTES_MAX,
    DisagreementError,
    OnReplicaFailure,
    Spec,
)
from muster.contract.spec.spec_words import KEY, says, section
from muster.contract.training.hints import hint
from muster.contract.training.values import Says


def parse_spec_text(text: str) -> Spec:
    """A spec from YAML or JSON text.

    Raises:
        SpecError: with every problem at once.
    """
    # The functions read parsed specs only; YAML would cost each of their cold starts 10 ms.
    from muster.contract.spec.yaml_text import load_yaml  # noqa: PLC0415

    size = len(text.encode(errors="surrogatepass"))
    if size > SPEC_BYTES_MAX:
        raise SpecError([Problem("the spec", f"{size:,} bytes", f"at most {SPEC_BYTES_MAX:,}: keep data in S3")])
    try:
        value = load_yaml(text)
    except ValueError as error:
        raise SpecError([Problem("the spec", str(error), "write it as YAML or JSON")]) from None
    return parse_spec(value)


def parse_spec(value: Any) -> Spec:
    """A spec from a parsed document.

    Raises:
        SpecError: with every problem at once.
    """
    if not isinstance(value, dict):
        raise SpecError(
            [
                Problem(
                    "the spec",
                    _show(value),
                    "write a mapping: replicas: 4, trainer: package.module:function, …",
                )
            ]
        )
    unstorable = _unstorable(value)
    sound = _without(value, {problem.field.partition(".")[0] for problem in unstorable})
    try:
        spec = Spec.model_validate(sound)
    except ValidationError as error:
        items = error.errors(include_url=False)
        problems = [problem for item in items for problem in _problems(item)]
        faulty = {str(item["loc"][0]) for item in items if item["loc"]}
        # What disagrees with a faulty field is not known before that is right.
        rest = [p for p in _disagreements(_without(sound, faulty)) if not _names(p, faulty)] if faulty else []
        raise SpecError([*problems, *rest, *unstorable]) from None
    if unstorable:
        raise SpecError(unstorable)
    return spec


def _unstorable(spec: dict[Any, Any]) -> list[Problem]:
    """What JSON cannot hold, or what a JSON parser could not read back."""
    problems: list[Problem] = []
    # Not recursive: how deep a stranger nests is the stranger's choice.
    pending: deque[tuple[str, int, Any]] = deque((str(key), 1, item) for key, item in spec.items())
    while pending:
        field, depth, value = pending.popleft()
        if depth > DEPTH_MAX:
            top = field.partition(".")[0]
            problems.append(Problem(top, f"more than {DEPTH_MAX} levels of nesting", "flatten it, or keep it in S3"))
        elif isinstance(value, dict):
            pending += [(f"{field}.{key}", depth + 1, item) for key, item in value.items()]
        elif isinstance(value, list):
            pending += [(f"{field}.{index}", depth + 1, item) for index, item in enumerate(value)]
        elif isinstance(value, float) and not math.isfinite(value):
            problems.append(Problem(field, str(value), "JSON has no such number; pass it as text"))
        if not _is_unicode(value) or not all(_is_unicode(key) for key in (value if isinstance(value, dict) else ())):
            problems.append(Problem(field, _show(value), "a lone surrogate is in it; write Unicode text"))
    return problems


def _is_unicode(value: Any) -> bool:
    try:
        str(value if isinstance(value, str) else "").encode()
    except UnicodeEncodeError:
        return False
    return True


# Stand-ins for faulty fields, chosen so that they disagree with nothing.
_STAND_INS = {
    "replicas": REPLICAS_MAX,
    "trainer": "module:function",
    "algorithm_name": "algorithm",
    "entrypoint": ["program"],
    "on_replica_failure": "continue",
}


def _without(value: dict[Any, Any], faulty: set[str]) -> dict[Any, Any]:
    """The spec without its faulty fields: they must not hide what else is wrong, nor be blamed twice."""
    rest = {key: item for key, item in value.items() if key not in faulty}
    return rest | {key: item for key, item in _STAND_INS.items() if key in faulty}


def _disagreements(rest: dict[Any, Any]) -> list[Problem]:
    """Problems between fields, each of which is right in itself."""
    try:
        Spec.model_validate(rest)
    except ValidationError as error:
        return [problem for item in error.errors(include_url=False) for problem in _problems(item)]
    return []


def _names(problem: Problem, faulty: set[str]) -> bool:
    return any(re.search(rf"\b{re.escape(name)}\b", str(problem)) for name in faulty)


_PARTS_SHOWN = 8  # of a nested field: the whole way down to a value may be longer than any message

_TYPES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text (in quotes if YAML reads it as something else)",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping of names to values",
    "model_type": "a mapping of names to values",
}


def _problems(item: Any) -> list[Problem]:
    context = item.get("ctx", {})
    if isinstance(context.get("error"), DisagreementError):
        return list(context["error"].problems)
    kind, location, found = item["type"], item["loc"], item["input"]
    # pydantic marks the key of a mapping by a part of its own.
    parts = [str(part.value if isinstance(part, FailureClass) else part) for part in location if part != KEY]
    field = ".".join(parts[:_PARTS_SHOWN]) or "the spec"
    if kind == "extra_forbidden":
        return [Problem(field, "an unknown field", _suggest(location))]
    if kind == "missing":
        return [Problem(field, "nothing", "it is required")]
    words = says(location)
    if kind in _BOUNDS:
        return [_bound(kind, context, field, found, words)]
    if kind == "string_pattern_mismatch":
        return [Problem(field, _show(found), words.remedy or "correct it", words.allowed)]
    return [Problem(field, _show(found), _remedy(kind, context, field))]


def _remedy(kind: str, context: dict[str, Any], field: str) -> str:
    if kind in _TYPES:
        return f"write {_TYPES[kind]}"
    if kind in {"enum", "is_instance_of", "literal_error"}:
        return f"choose one of {_choices(kind, context, field)}"
    return "it cannot be stored as JSON" if "json" in kind else f"it is not allowed ({kind})"


# Kind of error -> the limit's name in pydantic's context, its wording, what to do.
_BOUNDS = {
    "greater_than_equal": ("ge", "at least {:,}", "raise it"),
    "greater_than": ("gt", "more than {:,}", "raise it"),
    "less_than_equal": ("le", "at most {:,}", "lower it"),
    "string_too_long": ("max_length", "at most {:,} characters", "remove {:,}"),
    "string_too_short": ("min_length", "at least {:,} characters", "write the whole value, or leave the field out"),
    "too_long": ("max_length", "at most {:,} entries", "remove {:,}"),
    "too_short": ("min_length", "at least {:,} entries", "add one, or leave the field out"),
}


def _bound(kind: str, context: dict[str, Any], field: str, found: Any, words: Says) -> Problem:
    name, allowed, remedy = _BOUNDS[kind]
    limit = context[name]
    shown = f"{len(found):,} entries" if kind == "too_long" else _show(found)
    if kind in {"too_long", "string_too_long"}:
        remedy = remedy.format(len(found) - limit)
    return Problem(field, shown, words.remedy or remedy, allowed.format(limit))


def _choices(kind: str, context: dict[str, Any], field: str) -> str:
    if kind == "literal_error":
        return str(context["expected"]).replace("'", "").replace(" or ", ", ")
    choices: Iterable[StrEnum] = DEFAULT_BUDGETS if field.startswith("reruns.") else OnReplicaFailure
    return ", ".join(choice.value for choice in choices)


def _suggest(location: Sequence[int | str]) -> str:
    name, known = str(location[-1]), list((section(location) or Spec).model_fields)
    if (said := hint(name)) is not None:
        return said
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]}?"
    return "known here are " + ", ".join(known)


def _show(value: Any) -> str:
    text = re.sub(r"\s+", " ", repr(value))
    return text if len(text) <= 80 else f"{text[:77]}..."
