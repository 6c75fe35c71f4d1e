"""Names of places: regions of accounts in which the replicas of a stack's runs may be."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from muster.contract.training.values import Wording

HOME = "home"
"""The place of the stack itself; no other place has this name."""
PLACES_MAX = 8  # Lambda: the environment of a function has at most 4 KB; IAM: the policies of its role 10 KB
PLACE_NAME_MAX = 16
ENV_LOCAL_PLACES = "MUSTER_LOCAL_PLACES"
"""The places of the embedded cloud as JSON, in the shell that uses it: a local deployment may use them. By name, each
with `region`, `account` and `endpoint`."""

PlaceName = Annotated[
    str,
    Field(max_length=PLACE_NAME_MAX, pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$"),
    Wording(f"lower-case letters, digits and single hyphens, up to {PLACE_NAME_MAX}, with a letter at the beginning"),
]
