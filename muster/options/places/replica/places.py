"""What the option adds to a replica: rounds over several places (the seam `replica.places`)."""

from __future__ import annotations

from muster.options.places.replica.two_levels import RoundsOfPlaces
from muster.replica.rounds.round_context import OfferedPlaces

OFFER = OfferedPlaces(RoundsOfPlaces)
