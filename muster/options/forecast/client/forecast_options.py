"""What `muster plan` asks for a forecast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from pydantic import Field

Positive = Field(gt=0, allow_inf_nan=False)


@dataclass(frozen=True)
class ForecastOptions:
    """What a spec does not say."""

    parameters: Annotated[
        float | None, typer.Option(help="Predict the utilisation: the model's parameters, such as 124e6."), Positive
    ] = None
    step_seconds: Annotated[float | None, typer.Option(help="How long an inner step takes."), Positive] = None
    step_samples: Annotated[
        float | None, typer.Option(help="Samples or tokens of a replica's inner step."), Positive
    ] = None
    like: Annotated[str | None, typer.Option(metavar="RUN", help="What is not set is as in this run.")] = None
    algorithm: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting that kwargs do not have: codec=int4.")
    ] = None
    link_gbps: Annotated[float | None, typer.Option(help="Of a place's link to home."), Positive] = None
    link_seconds: Annotated[
        float | None, typer.Option(help="Until home answers another place."), Field(ge=0, le=60)
    ] = None
    target_utilisation: Annotated[
        float | None, typer.Option(help="Propose settings that reach it, such as 0.95."), Field(gt=0, lt=1)
    ] = None
