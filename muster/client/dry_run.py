"""The requests that a spec would send, without a cloud."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from muster.contract.plan import Place, Plan
from muster.contract.request import training_job_request
from muster.contract.spec import Spec

# What is known only at the launch. Angle brackets: nobody can take them for real values.
_RUN = "<run>"
_PLACE = Place(bucket="<bucket>", role_arn="<replica-role>", job_prefix="muster")
_IMAGE = "<image-of-the-stack>"


def dry_run(spec: Spec) -> list[dict[str, Any]]:
    """The CreateTrainingJob request of every replica's first attempt, by rank."""
    complete = spec if spec.image or spec.algorithm_name else spec.model_copy(update={"image": _IMAGE})
    plan = Plan.make(spec.name or _RUN, "<execution>", "<start>", _PLACE, complete)
    return [training_job_request(plan, rank, attempt=1) for rank in range(spec.replicas)]


def summary(requests: Sequence[dict[str, Any]]) -> str:
    """The first request in full and the names of the others, which differ in rank only."""
    first, names = requests[0], [request["TrainingJobName"] for request in requests]
    count = f"{len(names)} training job{'s' if len(names) > 1 else ''}"
    to_last = f": {names[0]} to {names[-1]}" if len(names) > 1 else f": {names[0]}"
    remark = "Nothing was sent; what stands in <brackets>, and with it the plan's digest, is known at the launch."
    return f"{count}{to_last}.\n{remark}\nThe request of rank 0:\n{json.dumps(first, indent=2)}"
