"""Reading a spec, with every problem at once and in the user's own terms."""

from __future__ import annotations

import difflib
import math
import re
from collections import deque
from typing import Any

from pydantic import BaseModel, ValidationError

from muster.contract.errors import Problem, SpecError
from muster.contract.failures import FailureClass
from muster.contract.names import REPLICAS_MAX
from muster.contract.spec import (
    DEPTH_MAX,
    SPEC_BYTES_MAX,
    Budget,
    DisagreementError,
    OnReplicaFailure,
    Rendezvous,
    Spec,
)


def parse_spec_text(text: str) -> Spec:
    """A spec from YAML or JSON text.

    Raises:
        SpecError: with every problem at once.
    """
    # The functions read parsed specs only; YAML would cost each of their cold starts 10 ms.
    from muster.contract.yaml_text import load_yaml  # noqa: PLC0415

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
        rest = _disagreements(_without(sound, faulty)) if faulty else []
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


_PARTS_SHOWN = 6  # of a nested field: the whole way down to a value may be longer than any message

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
    # pydantic marks the key of a mapping by the pseudo-part [key].
    parts = [str(part.value if isinstance(part, FailureClass) else part) for part in location if part != "[key]"]
    field = ".".join(parts[:_PARTS_SHOWN]) or "the spec"
    if kind == "extra_forbidden":
        return [Problem(field, "an unknown field", _suggest(parts))]
    if kind == "missing":
        return [Problem(field, "nothing", "it is required")]
    return [Problem(field, _show(found), _allowed(kind, context, field))]


def _allowed(kind: str, context: dict[str, Any], field: str) -> str:
    if kind in _TYPES:
        return f"write {_TYPES[kind]}"
    if kind in {"enum", "is_instance_of"}:
        choices = FailureClass if field.startswith("reruns.") else OnReplicaFailure
        return "choose one of " + ", ".join(choice.value for choice in choices)
    bounds = {
        "greater_than_equal": ("ge", "at least {}"),
        "greater_than": ("gt", "more than {}"),
        "less_than_equal": ("le", "at most {}"),
        "string_too_long": ("max_length", "at most {} characters"),
        "string_too_short": ("min_length", "at least {} characters"),
        "too_long": ("max_length", "at most {} entries"),
        "too_short": ("min_length", "at least {} entries"),
    }
    if kind in bounds:
        key, wording = bounds[kind]
        return wording.format(context[key])
    if kind == "string_pattern_mismatch":
        return _PATTERNS[field.partition(".")[0]]
    return "it cannot be stored as JSON" if kind.startswith("json") or "json" in kind else f"it is not allowed ({kind})"


_PATTERNS = {
    "name": "letters, digits and single hyphens between them",
    "trainer": "write package.module:function",
    "instance_type": "write it like ml.g5.2xlarge",
    "image": "an image's name has no white space",
    "environment": "a name has letters, digits and underscores and does not begin with a digit",
    "entrypoint": "one line, without a line break",
    "arguments": "one line, without a line break",
    "tags": "letters, digits, spaces and _ . : / = + - @ are allowed",
}


def _suggest(parts: list[str]) -> str:
    sections: dict[str, type[BaseModel]] = {"reruns": Budget, "rendezvous": Rendezvous}
    known = sections.get(parts[0], Spec) if len(parts) > 1 else Spec
    near = difflib.get_close_matches(parts[-1], known.model_fields, n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]}?"
    return "known here are " + ", ".join(known.model_fields)


def _show(value: Any) -> str:
    text = re.sub(r"\s+", " ", repr(value))
    return text if len(text) <= 80 else f"{text[:77]}..."
