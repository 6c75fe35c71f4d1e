"""Plan: turn the input of the execution into the plan, once, before anything else is created."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field

from muster.contract import timestamps
from muster.contract.aws.partitions import Locality
from muster.contract.errors import ConfigurationError, Problem, RunNameTakenError, SpecError, StatedProblem
from muster.contract.names import run_name
from muster.contract.run.execution_input import local_problems
from muster.contract.run.plan import Place, Plan
from muster.contract.run.run_document import RunDocument
from muster.contract.spec.backend_rules import rules_for
from muster.contract.spec.foreign_resources import foreign_resources
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.spec.stack_defaults import StackDefaults
from muster.contract.timestamps import Timestamp
from muster.contract.training.source_delivery import is_source_key, source_key
from muster.control.aws.store import DocumentStore
from muster.control.documents import RunDocuments
from muster.control.replica_package import ReplicaPackage, keep
from muster.control.seat_keeper import seat_keeper

if TYPE_CHECKING:
    from muster.contract.run.plan import Lineage
    from muster.control.control_plane import ControlPlane
    from muster.control.spec_source import PreparedSpec


class PlanRequest(BaseModel):
    """What the workflow sends: its execution, and the input as it is."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    # Step Functions: an execution's name has at most 80 characters.
    execution_name: Annotated[str, Field(min_length=1, max_length=80)]
    execution_arn: Annotated[str, Field(min_length=1, max_length=2_048)]
    started_at: Annotated[str, Field(min_length=1, max_length=64)]
    input: object


@dataclass(frozen=True)
class Deployment:
    """What the stack brings to a plan."""

    place: Place
    defaults: StackDefaults
    package: ReplicaPackage
    pod_role_arn: str | None = None
    """The role of jobs that are no training jobs."""


def make_plan(plane: ControlPlane, deployment: Deployment, request: PlanRequest) -> Plan:
    """Write the plan and the run document. Idempotent: the first plan of an execution stays.

    A run is planned again after a retry and after its turn in the queue. The stack may have other defaults, another
    limit or other rules by then: they are for new runs.

    Raises:
        SpecError: the input is not a spec that can be run; nothing was written.
        RunNameTakenError: the run name belongs to another execution.
    """
    store = plane.store
    documents = RunDocuments(store, run_name(request.execution_name))
    plan = documents.plan() or _planned(plane, deployment, request)
    if (plan.execution_arn, plan.created_at) != (request.execution_arn, _created_at(request)):
        # Step Functions gives an execution the same ARN again if 90 days have passed since the end of the first one.
        raise RunNameTakenError(plan.run, plan.execution_arn)
    if plan.lineage is not None:
        store.create(plan.layout.lineage, plan.lineage.to_json())
    if (seats := seat_keeper(plan.spec)) is not None:
        seats.prepare(store, plan)
    for key, document in RunDocument.every(plan).items():
        store.create(key, document.to_json())
    return plan


def _planned(plane: ControlPlane, deployment: Deployment, request: PlanRequest) -> Plan:
    """The plan that is in the bucket now: a new one, or that of another call for the same run, which was faster."""
    store, cap = plane.store, plane.settings.max_concurrent_replicas
    prepared = _prepared(plane, request)
    given = parse_spec(request.input if prepared is None else prepared.document)
    spec = _completed(plane, given, deployment, request)
    if cap is not None and spec.replicas > cap:
        allowed = f"at most {cap:,}, the stack's max_concurrent_replicas"
        raise SpecError(
            [Problem("replicas", f"{spec.replicas:,}", "lower it, or raise the limit of the stack", allowed)]
        )
    if prepared is not None:
        prepared.store(store)
    place = deployment.place
    if spec.source_dir is not None:
        _keep_source(store, spec.source_dir)
        place = place.model_copy(update={"package_uri": deployment.package.store(store)})
    run = run_name(request.execution_name)
    lineage = None if spec.resume_from is None else _lineage(store, spec, run, request.execution_arn)
    plan = Plan.make(run, request.execution_arn, _created_at(request), place, spec, lineage=lineage)
    # Before the run has a plan: what is refused here is not planned.
    for service in plane.backends.beside_training(spec):
        service.prepare(plan, deployment.pod_role_arn)
    if plan.lineage is not None:
        # The last step before the plan: a run that is refused uses up no run that it would continue.
        _register(store, plan, plan.lineage.parent)
    return plan if store.create(plan.layout.plan, plan.to_json()) else RunDocuments(store, run).require_plan()


def _prepared(plane: ControlPlane, request: PlanRequest) -> PreparedSpec | None:
    """The spec with its model looked up and its recipe resolved; None where it has neither.

    Raises:
        SpecError: one of them cannot be found or read, or the recipe is not the one that a client has stored.
    """
    given = request.input
    if not isinstance(given, dict) or (given.get("model") is None and given.get("recipe") is None):
        return None
    # The models of results, and what reads a recipe, would add to the cold start of every plan.
    from muster.control.spec_source import Reading, prepared_spec  # noqa: PLC0415

    account = Locality.of_arn(request.execution_arn).account
    return prepared_spec(given, Reading(plane.store, plane.clients, account))


def _lineage(store: DocumentStore, spec: Spec, run: str, execution_arn: str) -> Lineage:
    """The lineage of a run that continues another one."""
    # Most runs continue none, and the result's models would add to every cold start.
    from muster.contract.run.continuation import Continuation  # noqa: PLC0415
    from muster.control.continuation_registry import require_lineage  # noqa: PLC0415

    return require_lineage(store, spec, Continuation(run=run, execution_arn=execution_arn))


def _register(store: DocumentStore, plan: Plan, parent: str) -> None:
    """Register the run of `plan` as the continuation of `parent`."""
    from muster.contract.run.continuation import Continuation  # noqa: PLC0415
    from muster.control.continuation_registry import register_continuation  # noqa: PLC0415

    register_continuation(store, parent, Continuation(run=plan.run, execution_arn=plan.execution_arn))


def _keep_source(store: DocumentStore, uri: str) -> None:
    """Let an archive in the stack's bucket exist for as long as the run; a continuation's may be as old as its lineage.

    Raises:
        SpecError: it does not exist, or is no archive of source code.
    """
    key = uri.removeprefix(store.uri(""))
    if key == uri:
        return
    if not is_source_key(key):
        remedy = "launch the run from its folder with `muster launch`, which uploads it, or use another bucket"
        allowed = f"in the stack's bucket {store.uri(source_key('SHA-256'))}, as `muster launch` stores it"
        raise SpecError([Problem("source_dir", repr(uri), remedy, allowed)])
    if not keep(store, key, lambda: found.body if (found := store.get(key)) else None):
        remedy = "launch the run from its folder with `muster launch`, which uploads it"
        raise SpecError([StatedProblem("source_dir", f"{uri} does not exist", remedy)])


def _created_at(request: PlanRequest) -> Timestamp:
    # The spelling of documents, whatever spelling Step Functions uses.
    return timestamps.text(timestamps.parse(request.started_at))


def _completed(plane: ControlPlane, spec: Spec, deployment: Deployment, request: PlanRequest) -> Spec:
    defaults, problems = deployment.defaults, []
    if spec.name is not None and spec.name != request.execution_name:
        found = f"{spec.name!r} in an execution named {request.execution_name!r}"
        problems.append(Problem("name", found, "leave it out, or use the same name for the execution"))
    for rules in rules_for(spec):
        problems += rules.launch_problems(run_name(request.execution_name), deployment.place.job_prefix, spec)
    problems += defaults.problems(spec, deployment.place.role_arn)
    problems += local_problems(spec)
    here = Locality.of_arn(request.execution_arn)
    problems += foreign_resources(spec.model_dump(mode="json"), here)
    problems += _place_problems(plane, spec, here)
    if problems:
        raise SpecError(problems)
    return defaults.complete(spec)


def _place_problems(plane: ControlPlane, spec: Spec, here: Locality) -> list[Problem]:
    if spec.places is None:
        return []
    try:
        placement = plane.backends.placement
    except ConfigurationError as error:
        return [StatedProblem("places", str(error).rstrip("."), "leave it out")]
    return placement.problems(spec, here)
