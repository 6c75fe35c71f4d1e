"""Reading a spec, with every problem at once and in the user's own terms."""

from __future__ import annotations

import difflib
import re
from typing import Any

from pydantic import BaseModel, ValidationError

from muster.contract.errors import Problem, SpecError
from muster.contract.failures import FailureClass
from muster.contract.names import REPLICAS_MAX
from muster.contract.spec import SPEC_BYTES_MAX, Budget, DisagreementError, OnReplicaFailure, Rendezvous, Spec


def parse_spec_text(text: str) -> Spec:
    """A spec from YAML or JSON text.

    Raises:
        SpecError: with every problem at once.
    """
    # The functions read parsed specs only; YAML would cost each of their cold starts 10 ms.
    from muster.contract.yaml_text import load_yaml  # noqa: PLC0415

    size = len(text.encode())
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
    try:
        return Spec.model_validate(value)
    except ValidationError as error:
        items = error.errors(include_url=False)
        problems = [problem for item in items for problem in _problems(item)]
        faulty = {str(item["loc"][0]) for item in items if item["loc"]}
        raise SpecError([*problems, *_disagreements_of_the_rest(value, faulty)]) from None


# Stand-ins for faulty fields, chosen so that they disagree with nothing.
_STAND_INS = {
    "replicas": REPLICAS_MAX,
    "trainer": "module:function",
    "entrypoint": ["program"],
    "on_replica_failure": "continue",
}


def _disagreements_of_the_rest(value: dict[Any, Any], faulty: set[str]) -> list[Problem]:
    """Fields are compared with each other only where each is right in itself; a faulty one must not hide the others."""
    if not faulty:
        return []
    rest = {key: item for key, item in value.items() if key in Spec.model_fields and key not in faulty}
    rest |= {key: item for key, item in _STAND_INS.items() if key in faulty}
    try:
        Spec.model_validate(rest)
    except ValidationError as error:
        return [problem for item in error.errors(include_url=False) for problem in _problems(item)]
    return []


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
    field = ".".join(parts) or "the spec"
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
