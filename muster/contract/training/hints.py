"""Hints for a user who writes a member of CreateTrainingJob that the spec does not have under that name.

`RENAMED` holds the members that have another name in the spec, `LEFT_OUT` those that make no sense for an independent
replica. A test checks that they cover the whole request, together with the spec's own fields.
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
    "ModelPackageConfig": "it belongs to serverless model customization",
    "DatasetSource": "it belongs to serverless model customization",
}


def hint(name: str) -> str | None:
    """What to do about the unknown field `name`; None where CreateTrainingJob has no such member either."""
    folded = name.replace("_", "").casefold()
    for member, field in RENAMED.items():
        if member.casefold() == folded:
            return f"its name here is {field}" if field.isidentifier() else f"write {field}"
    return next((reason for member, reason in LEFT_OUT.items() if member.casefold() == folded), None)
