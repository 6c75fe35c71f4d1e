"""Hints for a user who writes a name of CreateTrainingJob or of an SDK that the spec does not have.

`RENAMED` holds the members of the request that have another name in the spec, `FORMER` the options of SDKs, and
`LEFT_OUT` the members that make no sense for an independent replica. A test checks that `RENAMED` and `LEFT_OUT` cover
the whole request, together with the spec's own fields. `OF_CLUSTERS` holds the options of HyperPod's command line, for
the section `hyperpod`.
"""

from __future__ import annotations

# Member of CreateTrainingJob -> the spec's field.
RENAMED: dict[str, str] = {
    "TrainingImage": "image",
    "ContainerEntrypoint": "entrypoint",
    "ContainerArguments": "arguments",
    "VolumeSizeInGB": "volume_gb",
    "MaxRuntimeInSeconds": "max_runtime_seconds",
    "MaxWaitTimeInSeconds": "max_wait_seconds",
    "MaxPendingTimeInSeconds": "max_pending_seconds",
    "EnableManagedSpotTraining": "spot",
    "AlgorithmSpecification": "image, algorithm_name, entrypoint and the other members at the top level of the spec",
    "ResourceConfig": "instance_type, volume_gb and the other members at the top level of the spec",
    "StoppingCondition": "max_runtime_seconds, max_wait_seconds and max_pending_seconds at the top level of the spec",
}

# Option of the SageMaker Python SDK's estimators, and of TorchX's former scheduler -> the spec's field.
FORMER: dict[str, str] = {
    "role": "role_arn",
    "image_uri": "image",
    "image_repo": "image",
    "entry_point": "trainer (or entrypoint, for a program of your own)",
    "user": "tags",
    "base_job_name": "name",
    "job_name": "name",
    "inputs": "input_data_config",
    "volume_size": "volume_gb",
    "volume_kms_key": "volume_kms_key_id",
    "max_run": "max_runtime_seconds",
    "max_wait": "max_wait_seconds",
    "max_retry_attempts": "maximum_retry_attempts in retry_strategy",
    "input_mode": "training_input_mode",
    "output_path": "s3_output_path in output_data_config",
    "output_kms_key": "kms_key_id in output_data_config",
    "disable_output_compression": "compression_type: NONE in output_data_config",
    "subnets": "subnets in vpc_config",
    "security_group_ids": "security_group_ids in vpc_config",
    "model_uri": "s3 in model",
    "model_channel_name": "channel_name of a channel in input_data_config",
    "encrypt_inter_container_traffic": "enable_inter_container_traffic_encryption",
    "use_spot_instances": "spot",
    "checkpoint_s3_uri": "s3_uri in checkpoint_config",
    "checkpoint_local_path": "local_path in checkpoint_config",
    "debugger_hook_config": "debug_hook_config",
    "enable_sagemaker_metrics": "enable_sage_maker_metrics_time_series",
    "disable_profiler": "disable_profiler in profiler_config",
    "git_config": "source_dir",
    "code_location": "source_dir",
    "dependencies": "source_dir, whose requirements.txt lists them",
    "hyperparameters": "hyper_parameters (a trainer receives kwargs)",
    "container_log_level": "sagemaker_container_log_level in hyper_parameters",
    "training_repository_access_mode": "training_repository_access_mode in training_image_config",
    "training_repository_credentials_provider_arn": "training_repository_auth_config in training_image_config",
    "enable_infra_check": "enable_infra_check in infra_check_config",
    "trainer_module": "trainer, as module:function",
    "trainer_kwargs": "kwargs",
}

# Member of CreateTrainingJob -> why the spec has no such field.
LEFT_OUT: dict[str, str] = {
    "TrainingJobName": "Muster chooses the name of every job, because the name makes a launch idempotent",
    "InstanceGroups": "all instances of a replica have one type; give ranks different types in `overrides`",
    "InstanceGroupNames": "all instances of a replica have one type, without groups",
    "InstancePlacementConfig": "it places the instances of one job in UltraServers, which Muster does not choose",
    "SelectedInstanceType": "only DescribeTrainingJob returns it; a request cannot set it",
    "SelectedInstanceCount": "only DescribeTrainingJob returns it; a request cannot set it",
    "S3DataDistributionType": "every instance of a replica has all its data; set channels per rank in `overrides`",
    "ServerlessJobConfig": "serverless model customization runs its own training code, not yours",
    "DatasetSource": "it belongs to serverless model customization",
}


# Option of HyperPod's command line for PyTorch jobs -> the field of `hyperpod`, or beside it.
OF_CLUSTERS: dict[str, str] = {
    "cluster_name": "cluster",
    "queue_name": "queue",
    "scheduler_type": "queue: Kueue admits its jobs",
    "priority_class": "priority",
    "service_account_name": "service_account",
    "label_selector": "node_labels",
    "node_selector": "node_labels",
    "deep_health_check_passed_nodes_only": "deep_health_checks",
    "preferred_topology": "topology, with mode: preferred",
    "required_topology": "topology, with mode: required",
    "max_retry": "max_retries in restarts",
    "memory": "memory_gib",
    "volume": "volumes",
    "max_node_count": "max_instances in elastic",
    "max_replica_count": "max_instances in elastic",
    "elastic_replica_increment_step": "step in elastic",
    "elastic_replica_discrete_values": "counts in elastic",
    "elastic_scaling_timeout_in_seconds": "scaling_timeout_seconds in elastic",
    "elastic_graceful_shutdown_timeout_in_seconds": "graceful_shutdown_seconds in elastic",
    "run_policy": "restarts, startup_deadline_seconds, fault_deadline_seconds and keep_seconds",
    "node_count": "instance_count, beside hyperpod",
    "replica_count": "instance_count, beside hyperpod",
    "nodes": "instance_count, beside hyperpod",
    "instance_count": "it beside hyperpod, not in it",
    "instance_type": "it beside hyperpod, not in it",
    "backend": "it beside hyperpod, not in it",
    "image": "it beside hyperpod, not in it",
    "environment": "it beside hyperpod, not in it",
    "tasks_per_node": "processes, beside hyperpod",
    "job_name": "name, beside hyperpod",
    "command": "entrypoint, beside hyperpod",
    "args": "arguments, beside hyperpod",
}


def hint(name: str) -> str | None:
    """What to do about the unknown field `name`; None where CreateTrainingJob has no such member either."""
    found = _renamed(name, RENAMED | FORMER)
    folded = _folded(name)
    return found or next((reason for member, reason in LEFT_OUT.items() if member.casefold() == folded), None)


def cluster_hint(name: str) -> str | None:
    """What to do about the unknown field `name` of the section `hyperpod`, if HyperPod's clients have one like it."""
    return _renamed(name, OF_CLUSTERS)


def _renamed(name: str, fields: dict[str, str]) -> str | None:
    for member, field in fields.items():
        if _folded(member) == _folded(name):
            return f"its name here is {field}" if field.isidentifier() else f"write {field}"
    return None


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()
