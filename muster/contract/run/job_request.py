"""The CreateTrainingJob request of an attempt: a pure function of the plan, so a dry run shows the exact request."""

from __future__ import annotations

from typing import cast

from pydantic import JsonValue

from muster.contract import names
from muster.contract.layout import s3_uri
from muster.contract.names import JobName
from muster.contract.run.plan import Plan
from muster.contract.run.replica_variables import (
    ENV_ATTEMPT,
    ENV_DOCUMENT,
    ENV_PROCESSES,
    ENV_RANK,
    ENV_REGION,
    ENV_RUN,
)
from muster.contract.spec.recipe_reference import RECIPE_CHANNEL, recipe_folder
from muster.contract.spec.spec import Spec
from muster.contract.training.input_channels import Channel
from muster.contract.training.model_source import ModelPackageFields
from muster.contract.training.network_access import AccessFields
from muster.contract.training.observation import ObservationFields
from muster.contract.training.source_channels import delivered_channel, delivery_channels
from muster.contract.training.source_delivery import BOOTSTRAP, BOOTSTRAP_NAME
from muster.contract.training.values import members

REPLICA_ENTRYPOINT = ["python", "-m", "muster.replica"]


def training_job_request(plan: Plan, rank: int, attempt: int, shortages: int = 0) -> dict[str, JsonValue]:
    """The request that launches attempt `attempt` of replica `rank`.

    `shortages` is how many earlier attempts found no capacity or no quota: after each the next fallback type is used.
    """
    spec, place, layout = plan.spec.of_rank(rank), plan.place, plan.layout
    checkpoints = s3_uri(place.bucket, plan.shared_layout.checkpoints(rank))
    request = {
        "TrainingJobName": str(JobName(place.job_prefix, plan.run, rank, attempt)),
        "RoleArn": spec.role_arn or place.role_arn,
        "AlgorithmSpecification": spec.algorithm_request(
            container_entrypoint(spec), container_arguments(spec), spec.metrics.definitions
        ),
        "HyperParameters": spec.hyper_parameters,
        "InputDataConfig": [channel.request() for channel in job_channels(plan, rank)],
        "OutputDataConfig": spec.output_request(s3_uri(place.bucket, layout.output.rstrip("/"))),
        "CheckpointConfig": spec.checkpoint_request(checkpoints, plan.shared_layout.run, rank),
        "ResourceConfig": spec.resource_request(shortages),
        "StoppingCondition": spec.stopping_request(),
        "EnableManagedSpotTraining": spec.spot,
        "RetryStrategy": spec.retry_strategy and spec.retry_strategy.request(),
        # The job's sessions get the tags of the session that creates it (contract.run.session_tags).
        "SessionChainingConfig": {"EnableSessionTagChaining": True},
        **members(spec, AccessFields, ObservationFields, ModelPackageFields),
        "Environment": job_environment(plan, spec, rank, attempt),
        "Tags": [{"Key": key, "Value": value} for key, value in job_tags(plan, rank, attempt).items()],
    }
    # SageMaker refuses an empty InputDataConfig, so empty members are left out. False is a value.
    filled = {name: value for name, value in request.items() if value is not None and value not in ({}, [])}
    # Every member comes from a document, so it is JSON.
    return cast("dict[str, JsonValue]", filled)


def job_channels(plan: Plan, rank: int) -> list[Channel]:
    """The channels of a job: the spec's, and those that deliver its source code and its recipe."""
    return [*plan.spec.of_rank(rank).input_data_config, *_delivery(plan), *_recipe(plan, rank)]


def job_environment(plan: Plan, spec: Spec, rank: int, attempt: int) -> dict[str, str]:
    """The environment of a job of `rank`, whose spec is `spec`."""
    return {
        **spec.environment,
        ENV_DOCUMENT: s3_uri(plan.place.bucket, plan.rank_layout(rank).document),
        ENV_RUN: plan.run,
        ENV_RANK: str(rank),
        ENV_ATTEMPT: str(plan.claim_number(attempt)),
        ENV_REGION: plan.region,
        **_processes(spec),
    }


def _processes(spec: Spec) -> dict[str, str]:
    """How many processes the replica starts. Without a trainer its program starts them; a plan of an older version of
    Muster does not say, and its replicas have one."""
    return {} if spec.processes is None else {ENV_PROCESSES: str(spec.processes)}


def output_uri(plan: Plan) -> str:
    """S3OutputPath of every request of the run, below which SageMaker creates one folder per job."""
    return str(plan.spec.output_request(s3_uri(plan.place.bucket, plan.layout.output.rstrip("/")))["S3OutputPath"])


def _delivery(plan: Plan) -> list[Channel]:
    uri, package = plan.spec.source_dir, plan.place.package_uri
    return [] if uri is None or package is None else delivery_channels(uri, package)


def _recipe(plan: Plan, rank: int) -> list[Channel]:
    """The channel with the recipe of a rank, if the run has one."""
    recipe = plan.spec.recipe
    folder = None if recipe is None else recipe_folder(recipe.of_rank(rank))
    return [] if folder is None else [delivered_channel(RECIPE_CHANNEL, s3_uri(plan.place.bucket, folder))]


def container_entrypoint(spec: Spec) -> list[str] | None:
    """The program: the user's entrypoint, Muster's for a trainer, or None for an algorithm's own."""
    own = _own_program(spec)
    if spec.source_dir is not None:
        return [*BOOTSTRAP, *(_started(own) if spec.arguments and spec.hook is None else ())]
    if own is not None:
        return own
    return REPLICA_ENTRYPOINT if spec.has_trainer else None


def container_arguments(spec: Spec) -> list[str]:
    """The arguments of the program.

    Whether SageMaker adds its `train` to an entrypoint without arguments is not documented: of a delivered program,
    which would get it, the own part is given as arguments.
    """
    arguments = spec.arguments if spec.hook is None else []
    return _started(_own_program(spec)) if spec.source_dir is not None and not arguments else arguments


def _own_program(spec: Spec) -> list[str] | None:
    return spec.entrypoint if spec.hook is None else None  # the replica runs a hooked program itself


def _started(own: list[str] | None) -> list[str]:
    return [BOOTSTRAP_NAME, *(own or [])]


def job_tags(plan: Plan, rank: int, attempt: int) -> dict[str, str]:
    """The tags of an attempt's job: the user's and Muster's."""
    return {**plan.spec.tags, **own_tags(plan, rank, attempt)}


def own_tags(plan: Plan, rank: int, attempt: int) -> dict[str, str]:
    """The tags that identify a job as one of this run."""
    return {
        names.TAG_RUN: plan.run,
        names.TAG_RANK: str(rank),
        names.TAG_ATTEMPT: str(attempt),
        names.TAG_PLAN: plan.digest,
    }
