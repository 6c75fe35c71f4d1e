"""Specs that between them set everything that can be set."""

from typing import Any

RULE = {
    "rule_configuration_name": "rule",
    "rule_evaluator_image": "image:1",
    "local_path": "/opt/ml/processing/output/rule/",
    "s3_output_path": "s3://bucket/rules",
    "instance_type": "ml.m5.xlarge",
    "volume_size_in_gb": 10,
    "rule_parameters": {"rule_to_invoke": "VanishingGradient"},
}
PLAN_ARN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/plan"

OF_AN_IMAGE: dict[str, Any] = {
    "replicas": 3,
    "image": "registry.example.com/team/image:1",
    "entrypoint": ["python", "train.py"],
    "arguments": ["--lr", "0.1"],
    "training_image_config": {
        "training_repository_access_mode": "Vpc",
        "training_repository_auth_config": {
            "training_repository_credentials_provider_arn": "arn:aws:lambda:us-east-1:123456789012:function:login"
        },
    },
    "training_input_mode": "FastFile",
    "hyper_parameters": {"epochs": "3"},
    "metric_definitions": [{"name": "loss", "regex": "loss=([0-9.]+)"}],
    "enable_sage_maker_metrics_time_series": True,
    "role_arn": "arn:aws:iam::123456789012:role/team/own",
    "instance_type": "ml.m5.2xlarge",
    "fallback_instance_types": ["ml.m5.4xlarge", "ml.c5.4xlarge"],
    "volume_gb": 100,
    "volume_kms_key_id": "alias/volume",
    "keep_alive_period_in_seconds": 3_600,
    "training_plan_arn": PLAN_ARN,
    "vpc_config": {"security_group_ids": ["sg-1"], "subnets": ["subnet-1", "subnet-2"]},
    "enable_inter_container_traffic_encryption": True,
    "max_pending_seconds": 7_200,
    "retry_strategy": {"maximum_retry_attempts": 30},
    "input_data_config": [
        {
            "channel_name": "train",
            "data_source": {"s3_data_source": {"s3_uri": "s3://bucket/train/"}},
            "content_type": "application/x-parquet",
            "shuffle_config": {"seed": -1},
        },
        {
            "channel_name": "labels",
            "data_source": {
                "s3_data_source": {
                    "s3_data_type": "AugmentedManifestFile",
                    "s3_uri": "s3://bucket/labels.manifest",
                    "attribute_names": ["source-ref", "label"],
                }
            },
            "input_mode": "Pipe",
            "record_wrapper_type": "RecordIO",
            "compression_type": "Gzip",
        },
        {
            "channel_name": "model",
            "data_source": {
                "s3_data_source": {
                    "s3_data_type": "ManifestFile",
                    "s3_uri": "s3://bucket/model.manifest",
                    "model_access_config": {"accept_eula": True},
                    "hub_access_config": {"hub_content_arn": "arn:aws:sagemaker:us-east-1:aws:hub-content/a/Model/b"},
                }
            },
            "input_mode": "File",
        },
        {
            "channel_name": "shared",
            "data_source": {
                "file_system_data_source": {
                    "file_system_id": "fs-0123456789abcdef0",
                    "file_system_type": "FSxLustre",
                    "file_system_access_mode": "rw",
                    "directory_path": "/fsx/data",
                }
            },
            "input_mode": "File",
        },
    ],
    "output_data_config": {"s3_output_path": "s3://team/out", "kms_key_id": "alias/out", "compression_type": "NONE"},
    "checkpoint_config": {"s3_uri": "s3://team/checkpoints", "local_path": "/opt/ml/saved"},
    "environment": {"A": "b"},
    "tags": {"team": "research"},
    "debug_hook_config": {
        "s3_output_path": "s3://bucket/debug",
        "local_path": "/opt/ml/debug",
        "hook_parameters": {"save_interval": "100"},
        "collection_configurations": [{"collection_name": "losses", "collection_parameters": {"save_interval": "1"}}],
    },
    "debug_rule_configurations": [RULE],
    "profiler_config": {
        "s3_output_path": "s3://bucket/profile",
        "profiling_interval_in_milliseconds": 500,
        "profiling_parameters": {"DetailedProfilingConfig": "{}"},
        "disable_profiler": False,
    },
    "profiler_rule_configurations": [RULE],
    "tensor_board_output_config": {"s3_output_path": "s3://bucket/tensorboard", "local_path": "/opt/ml/tensorboard"},
    "experiment_config": {
        "experiment_name": "experiment",
        "trial_name": "trial",
        "trial_component_display_name": "component",
        "run_name": "run",
    },
    "mlflow_config": {
        "mlflow_resource_arn": "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/server",
        "mlflow_experiment_name": "experiment",
        "mlflow_run_name": "run",
    },
    "model_package_config": {
        "model_package_group_arn": "arn:aws:sagemaker:us-east-1:123456789012:model-package-group/group",
        "source_model_package_arn": "arn:aws:sagemaker:us-east-1:123456789012:model-package/group/1",
    },
    "infra_check_config": {"enable_infra_check": True},
    "remote_debug_config": {"enable_remote_debug": True},
    "session_chaining_config": {"enable_session_tag_chaining": True},
    "overrides": {"0": {"instance_type": "ml.c5.xlarge", "environment": {"A": "c"}}},
}

OF_AN_ALGORITHM: dict[str, Any] = {
    "replicas": 2,
    "algorithm_name": "arn:aws:sagemaker:us-east-1:123456789012:algorithm/own-algorithm",
    "instance_preferences": [
        {"instance_type": "ml.p5.48xlarge", "training_plan_arns": [PLAN_ARN]},
        {"instance_type": "ml.p4d.24xlarge"},
    ],
}

ON_SPOT: dict[str, Any] = {
    "replicas": 2,
    "trainer": "package.module:train",
    "image": "image:1",
    "spot": True,
    "max_runtime_seconds": 60,
    "max_wait_seconds": 120,
}

FULL_SPECS = [OF_AN_IMAGE, OF_AN_ALGORITHM, ON_SPOT]


def s3(**fields: Any) -> dict[str, Any]:
    return {"s3_data_source": {"s3_uri": "s3://bucket/data", **fields}}


def channel(name: str = "train", source: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"channel_name": name, "data_source": source or s3(), **fields}
