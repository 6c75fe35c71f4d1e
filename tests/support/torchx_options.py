"""The options of TorchX's aws_sagemaker scheduler."""

# The options in the order of TorchX's own documentation.
OPTIONS = [
    *("role", "instance_type", "instance_count", "user"),
    *("keep_alive_period_in_seconds", "volume_size", "volume_kms_key", "max_run"),
    *("input_mode", "output_path", "output_kms_key", "base_job_name"),
    *("tags", "subnets", "security_group_ids", "model_uri"),
    *("model_channel_name", "metric_definitions", "encrypt_inter_container_traffic", "use_spot_instances"),
    *("max_wait", "checkpoint_s3_uri", "checkpoint_local_path", "debugger_hook_config"),
    *("enable_sagemaker_metrics", "enable_network_isolation", "disable_profiler", "environment"),
    *("max_retry_attempts", "source_dir", "git_config", "hyperparameters"),
    *("container_log_level", "code_location", "dependencies", "training_repository_access_mode"),
    *("training_repository_credentials_provider_arn", "disable_output_compression", "enable_infra_check", "image_repo"),
    *("quiet",),
]
