"""How a spec names a trainer that brings its own loop: a trainer of Muster calls it, as the former entrypoint did."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

OWN_LOOP = "muster.replica.legacy:train"
"""The `trainer` of such a run."""


def own_loop_kwargs(trainer: str, kwargs: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The `kwargs` of such a run, for the trainer `package.module:function` and its own arguments."""
    return {"trainer": trainer, "kwargs": dict(kwargs)}
