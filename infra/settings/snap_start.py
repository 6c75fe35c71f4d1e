"""Where functions can start from snapshots (Lambda SnapStart). Pure.

The runtime must be Python 3.12 or later, and there must be neither a container image, nor EFS, nor more than 512 MB of
ephemeral storage: all of that holds for Muster's functions. What a deployment chooses is the region.
"""

from __future__ import annotations

from collections.abc import Iterator

from muster.contract.errors import Problem
from muster.infra.settings.stack_settings import StackSettings

SETTING = "runs.snap_start"
# https://docs.aws.amazon.com/lambda/latest/dg/snapstart.html: every commercial region except these two.
_REGIONS_WITHOUT = ("ap-east-2", "ap-southeast-6")
_OTHER_PARTITIONS = ("cn-", "us-gov-", "us-iso", "eu-iso", "eusc-")
_ALLOWED = f"a commercial region of AWS other than {' and '.join(_REGIONS_WITHOUT)}"


def region_problems(settings: StackSettings, region: str | None) -> Iterator[Problem]:
    """The problem of a stack that wants snapshots in `region`, if that has none; None is a region not known yet."""
    if not settings.runs.snap_start or region is None:
        return
    if region in _REGIONS_WITHOUT or region.startswith(_OTHER_PARTITIONS):
        yield Problem(SETTING, f"true in {region}", "leave it out, or deploy to another region", _ALLOWED)
