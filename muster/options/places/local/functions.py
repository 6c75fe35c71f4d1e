"""The functions of a place call at the endpoint of that place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from ministack.core import lambda_runtime

from muster.local.ministack.host import Account
from muster.options.places.local.atlas import Atlas


def install(atlas: Atlas, variables: Mapping[str, Mapping[str, str]]) -> None:
    """Start functions with the variables of their place, by its name."""
    starts = lambda_runtime.subprocess

    def start(command: Sequence[str], **options: Any) -> Any:
        environment = options.get("env") or {}
        fields = environment.get("_LAMBDA_FUNCTION_ARN", "").split(":")
        place = atlas.of(Account(fields[4], fields[3])) if len(fields) > 4 else None
        own = variables[place.name] if place is not None and place != atlas.home else {}
        return starts.Popen(command, **{**options, "env": {**environment, **own}})

    lambda_runtime.subprocess = SimpleNamespace(**{**vars(starts), "Popen": start})
