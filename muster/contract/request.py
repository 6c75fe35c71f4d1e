"""The CreateTrainingJob request of an attempt: a pure function of the plan, so a dry run shows exactly what is sent."""

from __future__ import annotations

from typing import Any

from muster.contract import names
from muster.contract.layout import s3_uri
from muster.contract.names import JobName
from muster.contract.plan import Plan
from muster.contract.run_document import ENV_ATTEMPT, ENV_DOCUMENT, ENV_RANK, ENV_RUN

REPLICA_ENTRYPOINT = ["python", "-m", "muster.replica"]
CHECKPOINT_DIR = "/opt/ml/checkpoints"


def training_job_request(plan: Plan, rank: int, attempt: int) -> dict[str, Any]:
    """The request that launches attempt `attempt` of replica `rank`.

    Network isolation stays off: it would cut the container off from the bucket, and the rendezvous would wait for ever.
    """
    spec, place, layout = plan.spec, plan.place, plan.layout
    entrypoint = REPLICA_ENTRYPOINT if spec.entrypoint is None else spec.entrypoint
    algorithm: dict[str, Any] = {
        "TrainingImage": spec.image,
        "TrainingInputMode": "File",
        "ContainerEntrypoint": entrypoint,
    }
    if spec.arguments:
        algorithm["ContainerArguments"] = spec.arguments
    stopping: dict[str, int] = {"MaxRuntimeInSeconds": spec.max_runtime_seconds}
    if spec.spot:
        stopping["MaxWaitTimeInSeconds"] = spec.max_wait_seconds or spec.max_runtime_seconds
    return {
        "TrainingJobName": str(JobName(place.job_prefix, plan.run, rank, attempt)),
        "RoleArn": place.role_arn,
        "AlgorithmSpecification": algorithm,
        "OutputDataConfig": {"S3OutputPath": s3_uri(place.bucket, layout.output.rstrip("/"))},
        "CheckpointConfig": {
            "S3Uri": s3_uri(place.bucket, layout.checkpoints(rank).rstrip("/")),
            "LocalPath": CHECKPOINT_DIR,
        },
        "ResourceConfig": {
            "InstanceType": spec.instance_type,
            "InstanceCount": 1,
            "VolumeSizeInGB": spec.volume_gb,
        },
        "StoppingCondition": stopping,
        "EnableManagedSpotTraining": spec.spot,
        "EnableNetworkIsolation": False,
        "Environment": {
            **spec.environment,
            ENV_DOCUMENT: s3_uri(place.bucket, layout.document),
            ENV_RUN: plan.run,
            ENV_RANK: str(rank),
            ENV_ATTEMPT: str(attempt),
        },
        "Tags": [{"Key": key, "Value": value} for key, value in job_tags(plan, rank, attempt).items()],
    }


def job_tags(plan: Plan, rank: int, attempt: int) -> dict[str, str]:
    """The tags of an attempt's job: the user's, and our own."""
    return {**plan.spec.tags, **own_tags(plan, rank, attempt)}


def own_tags(plan: Plan, rank: int, attempt: int) -> dict[str, str]:
    """The tags by which we know a job as this run's."""
    return {
        names.TAG_RUN: plan.run,
        names.TAG_RANK: str(rank),
        names.TAG_ATTEMPT: str(attempt),
        names.TAG_PLAN: plan.digest,
    }
