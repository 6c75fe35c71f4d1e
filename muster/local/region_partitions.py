"""The partition that a region belongs to."""

from __future__ import annotations

from functools import cache

import botocore.session
from botocore.exceptions import UnknownRegionError


@cache
def partition_of(region: str) -> str:
    """The partition of a region; `aws` for one that botocore does not know."""
    try:
        return str(botocore.session.get_session().get_partition_for_region(region))
    except UnknownRegionError:
        return "aws"
