"""The requests of a spec, and the service's validation errors for a request."""

from typing import Any

from muster.contract.run.job_request import training_job_request
from muster.contract.run.plan import Place, Plan
from muster.contract.spec.spec import Spec
from muster.local.sagemaker.documented_limits import documented_violations
from muster.local.sagemaker.request_validation import violations

PLACE = Place(bucket="bucket", role_arn="arn:aws:iam::123456789012:role/replica", job_prefix="muster")


def plan_of(spec: Spec) -> Plan:
    plan = Plan.make(
        "run", "arn:aws:states:us-east-1:123456789012:execution:Muster:run", "2026-01-01T00:00:00Z", PLACE, spec
    )
    # As the control plane does: the plan goes through its JSON.
    return Plan.from_json(plan.to_json(), "plan")


def requests(spec: Spec, ranks: int | None = None) -> list[dict[str, Any]]:
    """Of the first `ranks` replicas, or of all."""
    plan = plan_of(spec)
    return [training_job_request(plan, rank, attempt=2, shortages=rank) for rank in range(ranks or spec.replicas)]


def refusals(request: dict[str, Any]) -> list[str]:
    return violations("CreateTrainingJob", request) or documented_violations(request)
