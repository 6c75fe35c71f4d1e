"""Plan: turn the input of the execution into the plan, once, before anything else is created."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from muster.contract import timestamps
from muster.contract.aws.partitions import Locality
from muster.contract.errors import Problem, RunNameTakenError, SpecError
from muster.contract.names import run_name
from muster.contract.run.continuation import Continuation
from muster.contract.run.plan import Place, Plan
from muster.contract.run.run_document import RunDocument
from muster.contract.spec.foreign_resources import foreign_resources
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.spec.stack_defaults import StackDefaults
from muster.control.aws.store import Store
from muster.control.continuation_registry import register_continuation
from muster.control.documents import RunDocuments


class PlanRequest(BaseModel):
    """What the workflow sends: its execution, and the input as it is."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    # Step Functions: an execution's name has at most 80 characters.
    execution_name: Annotated[str, Field(min_length=1, max_length=80)]
    execution_arn: Annotated[str, Field(min_length=1, max_length=2_048)]
    started_at: Annotated[str, Field(min_length=1, max_length=64)]
    input: object


def make_plan(
    store: Store, place: Place, defaults: StackDefaults, request: PlanRequest, replica_cap: int | None = None
) -> Plan:
    """Write the plan and the run document. Idempotent: the same execution always gets the same plan.

    Raises:
        SpecError: the input is not a spec that can be run; nothing was written.
        RunNameTakenError: the run name belongs to another execution.
    """
    spec = _completed(parse_spec(request.input), defaults, request)
    if replica_cap is not None and spec.replicas > replica_cap:
        allowed = f"at most {replica_cap:,}, the stack's max_concurrent_replicas"
        raise SpecError(
            [Problem("replicas", f"{spec.replicas:,}", "lower it, or raise the limit of the stack", allowed)]
        )
    run = run_name(request.execution_name)
    lineage = (
        None
        if spec.resume_from is None
        else register_continuation(store, spec, Continuation(run=run, execution_arn=request.execution_arn))
    )
    # The spelling of documents, whatever spelling Step Functions uses.
    created_at = timestamps.text(timestamps.parse(request.started_at))
    plan = Plan.make(run, request.execution_arn, created_at, place, spec, lineage=lineage)
    documents = RunDocuments(store, plan.run)
    if not store.create(plan.layout.plan, plan.to_json()):
        existing = documents.require_plan()
        # A retry finds the plan that the first try wrote.
        if existing.execution_arn != request.execution_arn or existing.digest != plan.digest:
            raise RunNameTakenError(plan.run, existing.execution_arn)
        plan = existing
    if plan.lineage is not None:
        store.create(plan.layout.lineage, plan.lineage.to_json())
    store.create(plan.layout.document, RunDocument.of(plan).to_json())
    return plan


def _completed(spec: Spec, defaults: StackDefaults, request: PlanRequest) -> Spec:
    problems = []
    if spec.name is not None and spec.name != request.execution_name:
        found = f"{spec.name!r} in an execution named {request.execution_name!r}"
        problems.append(Problem("name", found, "leave it out, or use the same name for the execution"))
    problems += defaults.problems(spec)
    if spec.source_dir is not None and not spec.delivered:
        remedy = "start the run with `muster launch`, which uploads it, or give the URI of an archive: s3://….tar.gz"
        problems.append(Problem("source_dir", f"{spec.source_dir!r}, a local folder", remedy))
    problems += foreign_resources(spec.model_dump(mode="json"), Locality.of_arn(request.execution_arn))
    if problems:
        raise SpecError(problems)
    return defaults.complete(spec)
