"""The environment of each function, as one typed model."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from muster.contract.names import PREFIX_MAX
from muster.contract.training.clusters import Clusters


def _read_clusters(value: object) -> object:
    """The document in the variable. Pydantic reports what is wrong with it as with any other variable."""
    return Clusters.model_validate_json(value) if isinstance(value, str) else value


# Lambda: the environment of a function has at most 4 KB; the deployment limits the defaults further.
_VARIABLE_MAX = 4_096
_Arn = Annotated[str, Field(min_length=20, max_length=2_048, pattern="^arn:")]


class FunctionEnvironment(BaseModel):
    """The environment that the stack sets for every function: `bucket` is the variable MUSTER_BUCKET."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", defer_build=True, alias_generator=lambda name: f"MUSTER_{name.upper()}"
    )

    bucket: Annotated[str, Field(min_length=3, max_length=63)]  # S3: a bucket's name has 3-63 characters
    job_prefix: Annotated[str, Field(min_length=1, max_length=PREFIX_MAX, pattern="^[a-zA-Z0-9]+$")]
    bus: Annotated[str, Field(min_length=1, max_length=256)]  # EventBridge: a bus's name has 1-256 characters
    max_concurrent_replicas: Annotated[int | None, Field(ge=1)] = None
    clusters: Annotated[Clusters, BeforeValidator(_read_clusters)] = Clusters()
    places: str = ""
    """Of a stack with places: the document that their option reads."""


class PlanEnvironment(FunctionEnvironment):
    """The additional environment of the function plan."""

    replica_role_arn: _Arn
    defaults: Annotated[str, Field(min_length=2, max_length=_VARIABLE_MAX)]
    launches_per_second: Annotated[int, Field(ge=1)]
    timer_function_arn: _Arn
    timer_role_arn: _Arn
    pod_role_arn: _Arn | None = None  # without clusters there is none
    scale_function_arn: _Arn | None = None


class AttemptEnvironment(FunctionEnvironment):
    """The additional environment of the function attempt."""

    launcher_role_arn: _Arn


class ExecutionsEnvironment(FunctionEnvironment):
    """The additional environment of sweep and start."""

    state_machine_arn: _Arn


class ScaleEnvironment(FunctionEnvironment):
    """The additional environment of the function that scales runs."""

    launches_per_second: Annotated[int, Field(ge=1)]


class NotifyEnvironment(FunctionEnvironment):
    """The additional environment of notify."""

    topic_arn: _Arn
