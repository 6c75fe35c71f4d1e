"""The environment of each function, as one typed model."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from muster.contract.names import PREFIX_MAX
from muster.contract.training.clusters import Clusters


def _read_clusters(value: object) -> object:
    """The document in the variable. Pydantic reports what is wrong with it as with any other variable."""
    return Clusters.model_validate_json(value) if isinstance(value, str) else value


class FunctionEnvironment(BaseModel):
    """The environment that the stack sets for every function."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    # S3: a bucket's name has 3-63 characters.
    bucket: Annotated[str, Field(alias="MUSTER_BUCKET", min_length=3, max_length=63)]
    job_prefix: Annotated[
        str, Field(alias="MUSTER_JOB_PREFIX", min_length=1, max_length=PREFIX_MAX, pattern="^[a-zA-Z0-9]+$")
    ]
    # EventBridge: a bus's name has 1-256 characters.
    bus: Annotated[str, Field(alias="MUSTER_BUS", min_length=1, max_length=256)]
    max_concurrent_replicas: Annotated[int | None, Field(alias="MUSTER_MAX_CONCURRENT_REPLICAS", ge=1)] = None
    clusters: Annotated[Clusters, BeforeValidator(_read_clusters), Field(alias="MUSTER_CLUSTERS")] = Clusters()


class PlanEnvironment(FunctionEnvironment):
    """The additional environment of the function plan."""

    # CreateTrainingJob: RoleArn has 20-2,048 characters.
    role_arn: Annotated[str, Field(alias="MUSTER_REPLICA_ROLE_ARN", min_length=20, max_length=2_048, pattern="^arn:")]
    # Lambda: the environment of a function has at most 4 KB; the deployment limits the defaults further.
    defaults: Annotated[str, Field(alias="MUSTER_DEFAULTS", min_length=2, max_length=4_096)]
    launches_per_second: Annotated[int, Field(alias="MUSTER_LAUNCHES_PER_SECOND", ge=1)]
    timer_function_arn: Annotated[
        str, Field(alias="MUSTER_TIMER_FUNCTION_ARN", min_length=20, max_length=2_048, pattern="^arn:")
    ]
    # Without clusters there is none.
    pod_role_arn: Annotated[
        str | None, Field(alias="MUSTER_POD_ROLE_ARN", min_length=20, max_length=2_048, pattern="^arn:")
    ] = None
    timer_role_arn: Annotated[
        str, Field(alias="MUSTER_TIMER_ROLE_ARN", min_length=20, max_length=2_048, pattern="^arn:")
    ]


class AttemptEnvironment(FunctionEnvironment):
    """The additional environment of the function attempt."""

    launcher_role_arn: Annotated[
        str, Field(alias="MUSTER_LAUNCHER_ROLE_ARN", min_length=20, max_length=2_048, pattern="^arn:")
    ]


class ExecutionsEnvironment(FunctionEnvironment):
    """The additional environment of sweep and start."""

    state_machine_arn: Annotated[
        str, Field(alias="MUSTER_STATE_MACHINE_ARN", min_length=20, max_length=2_048, pattern="^arn:")
    ]


class NotifyEnvironment(FunctionEnvironment):
    """The additional environment of notify."""

    topic_arn: Annotated[str, Field(alias="MUSTER_TOPIC_ARN", min_length=10, max_length=2_048, pattern="^arn:")]
