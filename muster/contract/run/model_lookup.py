"""Where the model of a spec is: what an earlier run has left, or what a hub has. The looking up is the caller's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from pydantic import ValidationError

from muster.contract.errors import Problem, SpecError, StatedProblem
from muster.contract.layout import split_s3_uri
from muster.contract.run.plan import Plan
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result
from muster.contract.run.session_tags import model_tag
from muster.contract.text import some_of
from muster.contract.training.model_source import ModelFields, ModelSource, with_model

_LISTED_MAX = 4


@dataclass(frozen=True)
class EarlierRun:
    """A run of the stack, and its result; None while it has not ended."""

    plan: Plan
    result: Result | None


Runs = Callable[[str], EarlierRun | None]
"""The run of a name; None where there is none."""
Hubs = Callable[[ModelSource], ModelSource]
"""The source, which names a model of a hub, with its place. Raises a SpecError where the model cannot be found."""


def find_model(source: ModelSource, runs: Runs | None, hubs: Hubs | None = None) -> ModelSource:
    """The source with the place of its model.

    A run's model is looked up even where the place is known: it decides what the replicas may read. Without `runs` no
    run is looked up, and without `hubs` no hub is asked.

    Raises:
        SpecError: the model cannot be found; with every problem.
    """
    problems = list(source.problems())
    if problems:
        raise SpecError(problems)
    if source.run is not None and runs is not None:
        return _of_run(source, source.run, runs)
    if source.hub is not None and source.s3 is None and hubs is not None:
        return hubs(source)
    return source


def with_found_model(document: Mapping[Any, Any], runs: Runs | None, hubs: Hubs | None = None) -> dict[Any, Any]:
    """A spec's document with what its field `model` means; the document as it is where it names none.

    Raises:
        SpecError: the model cannot be found.
    """
    try:
        fields = ModelFields.model_validate({"model": document.get("model")})
    except ValidationError:
        # The reader of specs names what is wrong with it.
        return dict(document)
    if fields.model is None:
        return dict(document)
    return with_model(document, find_model(fields.model, runs, hubs))


def _of_run(source: ModelSource, name: str, runs: Runs) -> ModelSource:
    run = runs(name)
    if run is None:
        _refuse(f"{name} is not a run of this stack", "`muster list` shows the runs that there are")
    if run.result is None:
        _refuse(f"{name} has not ended", f"wait for its end: muster wait {name}")
    uri = _place(run.result, source.rank)
    _check_own(uri, name, run)
    if source.s3 is not None and source.s3 != uri:
        remedy = "leave s3 out: Muster finds it"
        raise SpecError([Problem("model.s3", repr(source.s3), remedy, f"the model of {name} is {uri}")])
    return source.model_copy(update={"s3": uri})


def _place(result: Result, rank: int | None) -> str:
    """The model that the replicas of the run have written together; else the checkpoint of one, or its artifact."""
    if rank is None and result.model is not None:
        return result.model.uri
    if rank is not None and rank >= len(result.replicas):
        found = f"{result.run} has {len(result.replicas)} replicas"
        raise SpecError([Problem("model.rank", str(rank), "lower it", f"{found}, numbered from 0")])
    replicas = [one for one in result.replicas if rank in {None, one.rank}]
    ended = [one for one in replicas if one.outcome is ReplicaOutcome.SUCCEEDED]
    places = {one.rank: place for one in ended if (place := one.checkpoint_uri or one.artifacts) is not None}
    if not places:
        _refuse(f"{result.run} has left no model{_why(result, replicas)}", "name another run")
    if len(set(places.values())) > 1:
        listed = [f"rank {number}: {place}" for number, place in sorted(places.items())]
        statement = f"the replicas of {result.run} have different checkpoints ({some_of(listed, _LISTED_MAX)})"
        _refuse(statement, f"choose one: {{run: {result.run}, rank: {min(places)}}}")
    return next(iter(places.values()))


def _why(result: Result, replicas: list[ReplicaResult]) -> str:
    if result.model_problem is not None:
        return f": {result.model_problem}"
    problems = [one.problem for one in replicas if one.problem is not None]
    if problems:
        return f": {problems[0]}"
    failed = [one for one in replicas if one.outcome is not ReplicaOutcome.SUCCEEDED]
    return f": replica {failed[0].rank} is {failed[0].outcome}" if failed else ""


def _check_own(uri: str, name: str, run: EarlierRun) -> None:
    """Manifests are untrusted: in the stack's bucket one may name what its own run has written, and nothing else."""
    bucket, key = split_s3_uri(uri)
    if bucket != run.plan.place.bucket:
        return
    own = (run.plan.layout.output, f"checkpoints/{run.plan.shared_layout.run}/")
    if not key.startswith(own) or "/../" in f"/{key}/":
        _refuse(f"the manifest of {name} names {uri}, which is not its own", "name another run")
    if model_tag(uri) is None:
        remedy = "copy it to a folder whose name has letters, digits and _ . = - alone, and name that: {s3: URI}"
        _refuse(f"the replicas cannot be allowed to read {uri}", remedy)


def _refuse(statement: str, remedy: str) -> NoReturn:
    raise SpecError([StatedProblem("model.run", statement, remedy)])
