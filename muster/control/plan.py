"""Plan: turn the execution's input into the plan, once, before anything else exists."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from muster.contract.errors import Problem, RunNameTakenError, SpecError
from muster.contract.names import run_name
from muster.contract.plan import Place, Plan
from muster.contract.run_document import RunDocument
from muster.contract.spec import Spec
from muster.contract.spec_reader import parse_spec
from muster.control.documents import RunDocuments
from muster.control.store import Store


class PlanRequest(BaseModel):
    """What the workflow sends: who it is, and its input untouched."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    # Step Functions: an execution's name has at most 80 characters.
    execution_name: Annotated[str, Field(min_length=1, max_length=80)]
    execution_arn: Annotated[str, Field(min_length=1, max_length=2_048)]
    started_at: Annotated[str, Field(min_length=1, max_length=64)]
    input: Any


def make_plan(
    store: Store, place: Place, default_image: str | None, request: PlanRequest, replica_cap: int | None = None
) -> Plan:
    """Write the plan and the replicas' document; the same execution gets the same plan however often it asks.

    Raises:
        SpecError: the input is no spec that can be run; nothing was written.
        RunNameTakenError: another execution owns the run.
    """
    spec = _with_defaults(parse_spec(request.input), default_image, request.execution_name)
    if replica_cap is not None and spec.replicas > replica_cap:
        allowed = f"at most {replica_cap:,}, the stack's max_concurrent_replicas"
        raise SpecError([Problem("replicas", f"{spec.replicas:,}", "lower it, or raise that", allowed)])
    plan = Plan.make(run_name(request.execution_name), request.execution_arn, request.started_at, place, spec)
    documents = RunDocuments(store, plan.run)
    if not store.create(plan.layout.plan, plan.to_json()):
        existing = documents.require_plan()
        # A function that is tried again finds its own plan.
        if existing.execution_arn != request.execution_arn or existing.digest != plan.digest:
            raise RunNameTakenError(plan.run, existing.execution_arn)
        plan = existing
    store.create(plan.layout.document, RunDocument.of(plan).to_json())
    return plan


def _with_defaults(spec: Spec, default_image: str | None, execution_name: str) -> Spec:
    problems = []
    if spec.name is not None and spec.name != execution_name:
        found = f"{spec.name!r} in an execution named {execution_name!r}"
        problems.append(Problem("name", found, "leave it out, or give the execution the same name"))
    image = spec.image or (default_image if spec.algorithm_name is None else None)
    if image is None and spec.algorithm_name is None:
        remedy = "name one, or deploy the stack with a default (cdk deploy -c replica_image=…)"
        problems.append(Problem("image", "neither an image nor a default of the stack", remedy))
    if problems:
        raise SpecError(problems)
    return spec.model_copy(update={"image": image})
