"""A request and a state of an embedded cloud, for several tests."""

from pathlib import Path
from typing import Any

from muster.local.cloud_state import CloudState

REQUEST: dict[str, Any] = {
    "TrainingJobName": "muster-run-r0-a1",
    "RoleArn": "arn:aws:iam::123456789012:role/replica",
    "AlgorithmSpecification": {
        "TrainingImage": "muster-local/python:1",
        "TrainingInputMode": "File",
        "ContainerEntrypoint": ["python"],
        "ContainerArguments": ["-m", "muster.replica"],
        "MetricDefinitions": [{"Name": "loss", "Regex": "loss=(.*)"}],
    },
    "HyperParameters": {"lr": "0.1"},
    "InputDataConfig": [
        {
            "ChannelName": "train",
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/train"}},
        }
    ],
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/output", "CompressionType": "GZIP"},
    "ResourceConfig": {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200},
    "EnableManagedSpotTraining": True,
    "CheckpointConfig": {"S3Uri": "s3://bucket/checkpoints", "LocalPath": "/opt/ml/checkpoints"},
    "RetryStrategy": {"MaximumRetryAttempts": 1},
    "Environment": {"MUSTER_RANK": "0"},
    "Tags": [{"Key": "muster:run", "Value": "Läufer 1"}],
    "VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
}

STATE = CloudState(
    endpoint="https://127.0.0.1:4570",
    port=4570,
    pid=1,
    region="eu-central-1",
    account_id="123456789012",
    access_key_id="AKIALOCAL",
    secret_access_key="se'cret $HOME",
    admin_token="token",
    ca_file=Path("/state/ca.pem"),
    bundle_file=Path("/state/bundle.pem"),
)
