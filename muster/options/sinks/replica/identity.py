"""Under which names a replica's metrics are stored: the same ones in every rerun and every continuation."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

_DIGEST = 8


@dataclass(frozen=True)
class Identity:
    """One replica of a lineage.

    Attributes:
        run: the first run of the lineage.
        rendezvous: the URI of its rendezvous, which no other lineage has.
    """

    run: str
    rank: int
    rendezvous: str

    @property
    def name(self) -> str:
        """`digits-7-r3`."""
        return f"{self.run}-r{self.rank}"

    @property
    def unique_name(self) -> str:
        """The name with a digest, for services where runs of several stacks meet: `digits-7-r3-5f0c92ab`."""
        return f"{self.name}-{hashlib.sha256(self.rendezvous.encode()).hexdigest()[:_DIGEST]}"
