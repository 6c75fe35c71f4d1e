"""What `muster plan` asks for a forecast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from pydantic import Field

PARAMETERS_MAX = 10**15
"""More than any model has."""
# A microsecond to 11 days, and links as slow and as fast: beyond them nothing is trained, and the arithmetic fails.
_Number = Field(ge=1e-6, le=1e6, allow_inf_nan=False)


@dataclass(frozen=True)
class ForecastOptions:
    """What a spec does not say."""

    parameters: Annotated[
        float | None,
        typer.Option(help="Predict the utilisation: the model's parameters, such as 124e6."),
        Field(ge=1, le=PARAMETERS_MAX, allow_inf_nan=False),
    ] = None
    step_seconds: Annotated[float | None, typer.Option(help="How long an inner step takes."), _Number] = None
    step_samples: Annotated[
        float | None,
        typer.Option(help="Samples or tokens of a replica's inner step."),
        Field(ge=1e-6, le=1e15, allow_inf_nan=False),
    ] = None
    like: Annotated[str | None, typer.Option(metavar="RUN", help="What is not set is as in this run.")] = None
    algorithm: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting that kwargs do not have: codec=int4.")
    ] = None
    link_gbps: Annotated[float | None, typer.Option(help="Of a place's link to home."), _Number] = None
    link_seconds: Annotated[
        float | None, typer.Option(help="Until home answers another place."), Field(ge=0, le=60)
    ] = None
    target_utilisation: Annotated[
        float | None, typer.Option(help="Propose settings that reach it, such as 0.95."), Field(gt=0, lt=1)
    ] = None
