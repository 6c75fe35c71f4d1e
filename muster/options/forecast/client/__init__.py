"""The client's part of forecasts: `muster plan` and statuses show them."""
