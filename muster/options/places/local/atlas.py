"""The places of an embedded cloud: their names, accounts and regions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from muster.contract.spec.places import HOME
from muster.local.ministack.host import Account


@dataclass(frozen=True)
class Place:
    """A region of an account."""

    name: str
    account: Account


class UnsuitablePlaceError(Exception):
    """A place cannot be part of this cloud."""


class Atlas:
    """All places, `home` first."""

    def __init__(self, home: Account, others: Mapping[str, Account]) -> None:
        """The places of a cloud whose own account and region is `home`.

        Raises:
            UnsuitablePlaceError: one is another's double, or in another partition.
        """
        self.home = Place(HOME, home)
        self.others = tuple(Place(name, account) for name, account in others.items())
        self.accounts = frozenset(place.account.account_id for place in self.all)
        for number, place in enumerate(self.others, start=1):
            if place.account.partition != home.partition:
                message = f"{place.name} is in the partition {place.account.partition}, home in {home.partition}"
                raise UnsuitablePlaceError(message)
            if place.account in (other.account for other in self.all[:number]):
                message = f"two places are {place.account.region} of {place.account.account_id}"
                raise UnsuitablePlaceError(message)

    @property
    def all(self) -> tuple[Place, ...]:
        """Every place."""
        return (self.home, *self.others)

    def of(self, account: Account) -> Place | None:
        """The place that is this account and region, or another account's place in the region; None if it has none."""
        there = self.in_region(account.region)
        return next((place for place in there if place.account == account), there[0] if there else None)

    def in_region(self, region: str) -> list[Place]:
        """The places of a region."""
        return [place for place in self.all if place.account.region == region]
