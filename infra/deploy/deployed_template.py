"""What the template of a deployed stack says about the stack. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from infra.settings.stack_settings import BucketTable

Template = Mapping[str, Any]

_LAUNCHER_ROLE = "MUSTER_LAUNCHER_ROLE_ARN"


def has_launcher_role(template: Template) -> bool:
    """Whether jobs are created with session tags. The replica role gives a session without them nothing of a run."""
    return any(True for _ in _variables(template, _LAUNCHER_ROLE))


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


def _variables(template: Template, name: str) -> Iterator[Any]:
    """The values of an environment variable in the functions that have it."""
    for item in template.get("Resources", {}).values():
        if item["Type"] == "AWS::Lambda::Function":
            found = item.get("Properties", {}).get("Environment", {}).get("Variables", {})
            if name in found:
                yield found[name]
