"""The frameworks that a new trainer can be written for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from muster.options import offers

PYTORCH = "pytorch"
"""Of a user who names none."""
LOOP = {"rounds": 20, "steps_per_round": 50}
"""The arguments of a trainer with a loop of its own."""


class Kind(StrEnum):
    """What a replica runs."""

    FUNCTION = "function"
    SCRIPT = "script"


@dataclass(frozen=True)
class Starter:
    """A trainer to start with."""

    words: str
    kwargs: dict[str, int]
    requirements: tuple[str, ...] = ()
    """What the images of AWS for PyTorch do not have, in the versions that Muster is tested with."""


@dataclass(frozen=True)
class Starters:
    """Trainers by the names of their frameworks; what an option offers at the seam `client.starter`."""

    starters: Mapping[str, Starter]
    package: str
    """Its folder `templates` has FRAMEWORK_training.py for each."""


CORE = Starters(
    {"numpy": Starter("arrays and a loop of your own", LOOP), PYTORCH: Starter("a PyTorch loop of your own", LOOP)},
    package="muster.client.starter",
)


@cache
def all_starters() -> dict[str, tuple[Starter, str]]:
    """Each framework's starter, and the package with its template: the core's first, then those of options."""
    return {
        name: (starter, offer.package)
        for offer in (CORE, *offers("client.starter", Starters))
        for name, starter in offer.starters.items()
    }
