"""The input of an execution, which starts a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from muster.contract.document import canonical_json
from muster.contract.errors import Problem, SpecError
from muster.contract.spec.open_spec import OpenRecipes, is_reference, refuse_unread
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import check_size, parse_spec
from muster.options import offers

INBOX = "inbox/"
"""A spec that is put under this prefix of the stack's bucket starts a run."""
INBOX_SUFFIXES = (".json", ".yaml", ".yml")


class StartInput(NamedTuple):
    """The input of an execution that a function starts, and the run's name if the spec has one."""

    name: str | None
    text: str


def start_input(document: Mapping[Any, Any]) -> StartInput:
    """The input for a spec as it was read. A recipe that it only names is resolved by the first step of the run.

    Raises:
        SpecError: with every problem that is known before.
    """
    recipe = document.get("recipe")
    if recipe is None or is_reference(recipe):
        spec = parse_spec(document)
        if problems := local_problems(spec):
            raise SpecError(problems)
        return StartInput(spec.name, execution_input(spec))
    found = next(offers("contract.open_recipes", OpenRecipes), None)
    if found is None:
        refuse_unread("recipe", document)
    found.check(document)
    name = document.get("name")
    return StartInput(name if isinstance(name, str) else None, _bounded(document))


def scheduled_input(document: Mapping[Any, Any]) -> StartInput:
    """The input for each run of a schedule.

    Raises:
        SpecError: as `start_input`, or for a name.
    """
    found = start_input(document)
    if found.name is not None:
        remedy = "leave it out: each run of a schedule gets its own name"
        raise SpecError([Problem("name", repr(found.name), remedy)])
    return found


def local_problems(spec: Spec) -> list[Problem]:
    """What only `muster launch` can replace by what a run needs."""
    problems = []
    if spec.source_dir is not None and not spec.delivered:
        remedy = "start the run with `muster launch`, which uploads it, or give the URI of an archive: s3://….tar.gz"
        problems.append(Problem("source_dir", f"{spec.source_dir!r}, a local folder", remedy))
    if spec.named_role is not None:
        remedy = "start the run with `muster launch`, which looks its ARN up, or write the ARN"
        problems.append(Problem("role_arn", f"{spec.named_role!r}, a name", remedy))
    return problems


def execution_input(spec: Spec) -> str:
    """The spec as canonical JSON: the same spec gives the same input. Defaults are left out, for the stack to add.

    Raises:
        SpecError: it is larger than the input of an execution can be.
    """
    return _bounded(spec.model_dump(mode="json", exclude_unset=True))


def _bounded(value: Mapping[str, object]) -> str:
    document = canonical_json(value)
    check_size(len(document))
    return document.decode()
