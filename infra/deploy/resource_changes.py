"""What a deployment changes in the stack: the resources of two templates, one line each. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from muster.infra.deploy.deployed_template import is_kept

Resources = Mapping[str, Mapping[str, Any]]

# CloudFormation makes a new resource when one of these changes, and deletes the old one unless it is retained.
_IDENTIFYING = {
    *("BucketName", "DashboardName", "EventBusName", "FunctionName", "LogGroupName", "QueueName", "RoleName"),
    *("StateMachineName", "TopicName"),
}


def resource_changes(deployed: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
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
