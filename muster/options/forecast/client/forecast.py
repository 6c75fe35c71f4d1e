"""The offer for the seam `client.forecast`. What predicts is imported late."""

from __future__ import annotations

from typing import Any

from muster.client.forecasts import ForecastOffer
from muster.contract.run.forecast import Forecast
from muster.options.forecast.client.forecast_options import ForecastOptions


def _planned(*asked: Any) -> Forecast | None:
    from muster.options.forecast.client.predictions import planned  # noqa: PLC0415

    return planned(*asked)


def _of_run(*known: Any) -> Forecast | None:
    from muster.options.forecast.client.predictions import of_run  # noqa: PLC0415

    return of_run(*known)


OFFER = ForecastOffer(ForecastOptions, _planned, _of_run)
