"""The run options: those of TorchX's aws_sagemaker scheduler under the same names, and Muster's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List  # noqa: UP035

# TorchX 0.7.0 compares an option's kind with these very objects, to which `dict[str, str]` is not equal.
Values = Dict[str, str]  # noqa: UP006
Texts = List[str]  # noqa: UP006


@dataclass(frozen=True)
class Option:
    """A run option, as `torchx runopts muster` shows it."""

    name: str
    kind: object
    help: str


FORMER = (
    Option("role", str, "role of the containers, its name or its ARN; default the stack's"),
    Option("instance_type", str, "SageMaker instance type; default the role's resource, else the stack's"),
    Option("instance_count", int, "replicas, if the component has only one"),
    Option("user", str, "a tag `user` on every training job"),
    Option("keep_alive_period_in_seconds", int, "how long an instance is kept warm for the next attempt, billed"),
    Option("volume_size", int, "storage volume of each instance, GiB"),
    Option("volume_kms_key", str, "key of the volume"),
    Option("max_run", int, "limit of one attempt in seconds"),
    Option("input_mode", str, "default input mode of channels: File, FastFile or Pipe"),
    Option("output_path", str, "S3 prefix of the jobs' folders; default the run's own"),
    Option("output_kms_key", str, "key of the model's objects"),
    Option("base_job_name", str, "what the run's name begins with; default the application's name"),
    Option("tags", Values, "tags of every training job, as name:value"),
    Option("subnets", Texts, "subnets of the VPC in which the replicas run"),
    Option("security_group_ids", Texts, "security groups of the replicas"),
    Option("model_uri", str, "s3://… of a model, read as a channel"),
    Option("model_channel_name", str, "name of that channel; default model"),
    Option("metric_definitions", Values, "metrics that SageMaker reads from the log, as name:regex"),
    Option(
        "encrypt_inter_container_traffic",
        bool,
        "a replica is one container: only for policies that require it",
    ),
    Option("use_spot_instances", bool, "managed spot training"),
    Option("max_wait", int, "limit of runtime and waiting for spot together, in seconds"),
    Option("checkpoint_s3_uri", str, "S3 prefix of checkpoints; see checkpoint_uri_exact"),
    Option("checkpoint_local_path", str, "the container's directory of checkpoints"),
    Option("debugger_hook_config", bool, "Debugger is off; to turn it on, set debug_hook_config in a spec"),
    Option("enable_sagemaker_metrics", bool, "keep the metrics as time series"),
    Option("enable_network_isolation", bool, "refused when true: the rendezvous is in S3"),
    Option("disable_profiler", bool, "turn the profiler off"),
    Option("environment", Values, "environment of the containers, as name:value"),
    Option("max_retry_attempts", int, "SageMaker's own retries within one attempt, 1 to 30"),
    Option("source_dir", str, "a folder, or the s3://… of an archive; default the workspace"),
    Option("git_config", Values, "refused: name a folder of a clone as source_dir"),
    Option(
        "hyperparameters",
        Values,
        "arguments of a script under torchrun, and what SageMaker's toolkits read, as name:value",
    ),
    Option("container_log_level", int, "sagemaker_container_log_level of the hyperparameters"),
    Option("code_location", str, "refused: the source goes into the stack's bucket; or name an archive as source_dir"),
    Option("dependencies", Texts, "refused: list them in requirements.txt of source_dir"),
    Option("training_repository_access_mode", str, "Platform, or Vpc for a private registry"),
    Option("training_repository_credentials_provider_arn", str, "the Lambda function that provides its credentials"),
    Option("disable_output_compression", bool, "leave the model uncompressed"),
    Option("enable_infra_check", bool, "a health check of the instance first"),
    Option("image_repo", str, "refused: push the image yourself and name it"),
    Option("quiet", bool, "without effect: no image is built"),
)

OWN = (
    Option("stack", str, "CloudFormation stack of Muster; default MUSTER_STACK, then Muster, then the only one"),
    Option("profile", str, "AWS profile; default as the AWS CLI"),
    Option("region", str, "AWS region; default as the AWS CLI"),
    Option("spec", str, "a YAML or JSON file with further fields of Muster's spec; the other options override it"),
    Option(
        "set", Values, "values of the spec by their paths, as rendezvous.grace_seconds:30; they override all others"
    ),
    Option(
        "recipe", str, "a SageMaker recipe: a YAML file, or s3://bucket/key; the file of the option spec can say more"
    ),
    Option("torchrun", bool, "run a Python script or module with one process per GPU; default only without entrypoint"),
    Option(
        "checkpoint_uri_exact",
        bool,
        "use checkpoint_s3_uri as it is, with {rank}/ in it for several replicas; default: run and rank are appended",
    ),
    Option("on_replica_failure", str, "what to do when a replica is lost: terminate or continue"),
    Option("fallback_instance_types", Texts, "instance types to use after an attempt found no capacity or quota"),
    Option("max_pending_seconds", int, "limit of the wait for capacity, in seconds"),
    Option("backend", str, "where replicas run: training-job, or hyperpod; default training-job"),
    Option("cluster", str, "with backend hyperpod: the HyperPod cluster; default the stack's only one"),
    Option("namespace", str, "its namespace; default the first one of the stack's settings"),
    Option("queue", str, "Kueue's local queue for the jobs"),
    Option("priority", str, "the jobs' priority class in Kueue"),
    Option("spares", int, "pods of each replica that wait to replace one that is lost"),
    Option("service_account", str, "one of your own for the pods; default one with the rights of the run"),
)

REFUSED = {
    "git_config": "name a folder of a clone as source_dir",
    "code_location": "name the archive itself as source_dir, or leave it to the stack's bucket",
    "dependencies": "list them in requirements.txt of source_dir",
    "image_repo": "push the image yourself and name it with --image",
}
"""Options that Muster refuses, each with what to do instead."""
