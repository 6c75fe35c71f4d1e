"""What the spec says to somebody who writes a name of CreateTrainingJob that it does not know.

`RENAMED` are the members that the spec spells in its own way; `LEFT_OUT` those that make no sense for an independent
replica. Together with the spec's own fields they cover the whole request, which a test holds.
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
    "AlgorithmSpecification": "image, algorithm_name, entrypoint and what else belongs to it, without a section",
    "ResourceConfig": "instance_type, volume_gb and what else belongs to it, without a section",
    "StoppingCondition": "max_runtime_seconds, max_wait_seconds and max_pending_seconds, without a section",
}

# Member of CreateTrainingJob -> why the spec has no such field.
LEFT_OUT: dict[str, str] = {
    "TrainingJobName": "Muster names every attempt's job itself: the name is what makes a launch idempotent",
    "InstanceGroups": "a replica is one instance; give ranks different types in `overrides`",
    "InstanceGroupNames": "a replica is one instance, without groups",
    "InstancePlacementConfig": "it places the instances of one job in UltraServers; a replica is one instance",
    "SelectedInstanceType": "an answer of DescribeTrainingJob",
    "SelectedInstanceCount": "an answer of DescribeTrainingJob",
    "S3DataDistributionType": "it divides data over the instances of one job; divide it over ranks in `overrides`",
    "ServerlessJobConfig": "serverless model customization brings its own training; it meets no other replica",
    "ModelPackageConfig": "it belongs to serverless model customization",
    "DatasetSource": "it belongs to serverless model customization",
}


def hint(name: str) -> str | None:
    """What to say of an unknown field `name` that CreateTrainingJob knows; None when it does not either."""
    folded = name.replace("_", "").casefold()
    for member, field in RENAMED.items():
        if member.casefold() == folded:
            return f"here it is called {field}" if field.isidentifier() else f"write {field}"
    return next((reason for member, reason in LEFT_OUT.items() if member.casefold() == folded), None)
