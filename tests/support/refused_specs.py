"""The error with which a spec is refused. A spec that is accepted fails the test, with its text."""

from collections.abc import Mapping

import pytest

from muster.contract.errors import SpecError
from muster.contract.spec.spec_reader import parse_spec, parse_spec_text

_SHOWN = 300


def refusal(spec: object) -> SpecError:
    """The error about a spec; text is read as YAML. A mapping's None removes a field."""
    if isinstance(spec, Mapping):
        spec = {name: value for name, value in spec.items() if value is not None}
    try:
        parse_spec_text(spec) if isinstance(spec, str) else parse_spec(spec)
    except SpecError as error:
        return error
    pytest.fail(f"accepted: {str(spec)[:_SHOWN]}")


def refused_fields(spec: object) -> dict[str, str]:
    """What is said of each field, without the field's name."""
    problems = refusal(spec).problems
    assert all(problem.found and problem.remedy for problem in problems), problems
    return {problem.field: str(problem).removeprefix(f"{problem.field}: ") for problem in problems}
