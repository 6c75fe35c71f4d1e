"""Reading a spec: YAML, JSON or a parsed document. A refusal names every problem at once."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import ValidationError

from muster.contract.document import written_fields
from muster.contract.errors import PROBLEMS_SHOWN, Problem, SpecError, StatedProblem, all_problems
from muster.contract.names import REPLICAS_MAX
from muster.contract.spec.private_values import kind_of
from muster.contract.spec.spec import SPEC_BYTES_MAX, Spec
from muster.contract.spec.spec_problems import field_name, nearest, problems_of

DEPTH_MAX = 64  # of nesting: far below the limit of any JSON parser
_NUMBER_END = 10**400  # Python writes and reads whole numbers of at most 4,300 digits

# Values in place of faulty fields, chosen so that no other field conflicts with them.
_STAND_INS = {
    "replicas": REPLICAS_MAX,
    "trainer": "module:function",
    "algorithm_name": "algorithm",
    "entrypoint": ["program"],
    "on_replica_failure": "continue",
}


def parse_spec_text(text: str) -> Spec:
    """A spec from YAML or JSON text.

    Raises:
        SpecError: with every problem at once.
    """
    return parse_spec(load_spec_text(text))


def load_spec_text(text: str) -> dict[object, object]:
    """The document in YAML or JSON text, whatever its fields say.

    Raises:
        SpecError: it is too long, is neither YAML nor JSON, or is no mapping.
    """
    # The functions read parsed specs only; importing YAML would add 10 ms to each of their cold starts.
    from muster.contract.spec.yaml_text import load_yaml  # noqa: PLC0415

    check_size(len(text.encode(errors="surrogatepass")))
    try:
        value = load_yaml(text)
    except ValueError as error:
        raise SpecError([StatedProblem("the spec", str(error), "correct the YAML or JSON")]) from None
    return spec_mapping(value)


def check_size(size: int) -> None:
    """Whether a spec of so many bytes is not too long.

    Raises:
        SpecError: it is.
    """
    if size > SPEC_BYTES_MAX:
        raise SpecError([Problem("the spec", f"{size:,} bytes", f"at most {SPEC_BYTES_MAX:,}: keep data in S3")])


def spec_mapping(value: object) -> dict[object, object]:
    """The document of a spec.

    Raises:
        SpecError: it is no mapping.
    """
    if isinstance(value, Mapping):
        return dict(value)
    remedy = "write a mapping: replicas: 4, trainer: package.module:function, …"
    raise SpecError([Problem("the spec", kind_of(value), remedy)])


def parse_spec(value: object) -> Spec:
    """A spec from a parsed document.

    Raises:
        SpecError: with every problem at once.
    """
    value = spec_mapping(value)
    unstorable = _unstorable(value)
    sound = _without(value, {problem.top for problem in unstorable})
    try:
        spec = Spec.model_validate(sound)
    except ValidationError as error:
        items = error.errors(include_url=False, include_context=False, include_input=False)
        known = written_fields(Spec)
        faulty = {str(item["loc"][0]) for item in items if item["loc"]}
        unknown = [name for name in faulty if name not in known]
        # What is missing is not reported where it is there, misspelled.
        meant = {nearest(name, list(known)) for name in unknown[:PROBLEMS_SHOWN]}
        faulty |= {name for name in meant if name is not None and name not in value}
        if "replicas" in faulty and isinstance(value.get("replicas"), Mapping):
            faulty.add("elastic")  # which a sound range completes
        # Whether other fields fit a faulty one is known only once it is corrected.
        others = _inconsistencies(_without(sound, faulty)) if faulty else []
        rest = [problem for problem in others if not _mentions(problem, faulty & known.keys())]
        raise SpecError([*problems_of(error), *rest, *(item.problem for item in unstorable)]) from None
    if unstorable:
        raise SpecError([item.problem for item in unstorable])
    return spec


def spec_problems(value: object) -> list[Problem]:
    """The problems of a parsed document, as `parse_spec` raises them; those that it only counts are counted."""
    try:
        parse_spec(value)
    except SpecError as error:
        return all_problems(error)
    return []


def unstorable_problems(document: Mapping[object, object]) -> list[Problem]:
    """What JSON cannot hold, or what a JSON parser could not read back."""
    return [item.problem for item in _unstorable(document)]


class _Unstorable(NamedTuple):
    top: str
    problem: Problem


class _Place(NamedTuple):
    """A place in the spec, by the place above it. The path as text could be far longer than the spec."""

    part: object
    above: _Place | None

    def parts(self) -> list[object]:
        place: _Place | None = self
        found: list[object] = []
        while place is not None:
            found.append(place.part)
            place = place.above
        return found[::-1]


def _unstorable(spec: Mapping[object, object]) -> list[_Unstorable]:
    found: list[_Unstorable] = []

    def add(place: _Place, statement: str, remedy: str, *, top: bool = False) -> None:
        parts = place.parts()
        field = field_name(parts[:1] if top else parts)
        found.append(_Unstorable(str(parts[0]), StatedProblem(field, statement, remedy)))

    # Not recursive: the user decides how deep the document is nested.
    pending: deque[tuple[_Place, int, object]] = deque((_Place(key, None), 1, item) for key, item in spec.items())
    while pending:
        place, depth, value = pending.popleft()
        if depth > DEPTH_MAX:
            add(place, f"more than {DEPTH_MAX} levels of nesting", "flatten the value, or keep it in S3", top=True)
            continue
        if isinstance(value, dict):
            pending += [(_Place(key, place), depth + 1, item) for key, item in value.items()]
        elif isinstance(value, list):
            pending += [(_Place(index, place), depth + 1, item) for index, item in enumerate(value)]
        elif isinstance(value, float) and not math.isfinite(value):
            add(place, f"found {value}", "JSON cannot represent this number; pass it as a string")
        elif isinstance(value, int) and abs(value) >= _NUMBER_END:
            add(place, "found a whole number of more than 400 digits", "pass it as a string")
        if not _is_unicode(value) or not all(_is_unicode(key) for key in (value if isinstance(value, dict) else ())):
            add(place, "it contains a lone surrogate", "use valid Unicode")
    return found


def _is_unicode(value: object) -> bool:
    try:
        str(value if isinstance(value, str) else "").encode()
    except UnicodeEncodeError:
        return False
    return True


def _without(value: Mapping[object, object], faulty: set[str]) -> dict[object, object]:
    """The spec without its faulty fields, which must neither hide other problems nor be reported twice."""
    rest = {key: item for key, item in value.items() if key not in faulty}
    return rest | {key: item for key, item in _STAND_INS.items() if key in faulty}


def _inconsistencies(rest: Mapping[object, object]) -> list[Problem]:
    """Problems between fields, each of which is right by itself."""
    try:
        Spec.model_validate(rest)
    except ValidationError as error:
        return problems_of(error)
    return []


def _mentions(problem: Problem, fields: set[str]) -> bool:
    return any(re.search(rf"\b{re.escape(name)}\b", str(problem)) for name in fields)
