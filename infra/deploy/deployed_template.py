"""What the template of a deployed stack says about the stack, and what a deployment changes in it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from muster.infra.settings.stack_settings import BucketTable

Template = Mapping[str, Any]
Resources = Mapping[str, Mapping[str, Any]]

_TIMER_FUNCTION = "MUSTER_TIMER_FUNCTION_ARN"
# CloudFormation makes a new resource when one of these changes, and deletes the old one unless it is retained.
_IDENTIFYING = {
    *("BucketName", "DashboardName", "EventBusName", "FunctionName", "LogGroupName", "QueueName", "RoleName"),
    *("StateMachineName", "TopicName"),
}


def is_kept(resource: Mapping[str, Any]) -> bool:
    """Whether CloudFormation leaves it in the account when it deletes the stack."""
    return resource.get("DeletionPolicy") in {"Retain", "RetainExceptOnCreate"}


def new_bucket(template: Template, deployed_name: str, table: BucketTable) -> str | None:
    """The bucket that the settings put in the place of the deployed one, in words; None where it stays.

    `deployed_name` is the name of the deployed stack's bucket.
    """
    if table.existing is not None:
        return None if table.existing == deployed_name else table.existing
    made = [item for item in template.get("Resources", {}).values() if item["Type"] == "AWS::S3::Bucket"]
    # CloudFormation replaces a bucket whose property BucketName changes, even where it was generated before.
    if made and made[0].get("Properties", {}).get("BucketName") == table.name:
        return None
    return table.name or "a new bucket with a generated name"


def timer_function(template: Template) -> str | None:
    """The logical id of the function that the timers of runs call; None if the stack has none."""
    references = (value.get("Fn::GetAtt") for value in _variables(template, _TIMER_FUNCTION))
    return next((reference[0] for reference in references if reference), None)


def rules(template: Template) -> dict[str, str | None]:
    """The logical ids of the rules, each with that of its event bus; None for the account's default bus."""
    return {
        name: item["Properties"].get("EventBusName", {}).get("Ref")
        for name, item in template.get("Resources", {}).items()
        if item["Type"] == "AWS::Events::Rule"
    }


def _variables(template: Template, name: str) -> Iterator[Any]:
    """The values of an environment variable in the functions that have it."""
    for item in template.get("Resources", {}).values():
        if item["Type"] == "AWS::Lambda::Function":
            found = item.get("Properties", {}).get("Environment", {}).get("Variables", {})
            if name in found:
                yield found[name]


def resource_changes(deployed: Template, new: Template) -> list[str]:
    """One line for each resource that is created, changed or deleted by deploying the template `new`."""
    before: Resources = deployed.get("Resources", {})
    after: Resources = new.get("Resources", {})
    return [*_created(before, after), *_changed(before, after), *_deleted(before, after)]


def _created(before: Resources, after: Resources) -> Iterator[str]:
    yield from (f"+ {after[name]['Type']} {name}" for name in sorted(after.keys() - before.keys()))


def _changed(before: Resources, after: Resources) -> Iterator[str]:
    for name in sorted(before.keys() & after.keys()):
        old, new = before[name].get("Properties", {}), after[name].get("Properties", {})
        properties = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
        others = sorted(
            key
            for key in {*before[name], *after[name]} - {"Properties", "Metadata"}
            if before[name].get(key) != after[name].get(key)
        )
        if properties or others:
            replaced = " (replaced)" if _IDENTIFYING & {*properties} else ""
            yield f"~ {after[name]['Type']} {name}: {', '.join([*properties, *others])}{replaced}"


def _deleted(before: Resources, after: Resources) -> Iterator[str]:
    for name in sorted(before.keys() - after.keys()):
        kept = " (stays in the account, outside the stack)" if is_kept(before[name]) else ""
        yield f"- {before[name]['Type']} {name}{kept}"
