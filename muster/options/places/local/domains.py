"""The gateways of a cloud with places: one for each account and region that is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.types import ASGIApp

from muster.local.ministack.host import Account
from muster.local.service.gateway import Gateway
from muster.options.places.local.atlas import Atlas

_Variables = Mapping[str, str]


@dataclass
class Domains:
    """Makes each gateway when it is first called: an account can use every region, also where it has no place."""

    atlas: Atlas
    variables: Mapping[str, _Variables]
    """The environment variables of jobs, by their place."""
    make: Callable[[Account, str, _Variables], ASGIApp]
    _gateways: dict[Account, Gateway] = field(default_factory=dict)

    def open(self, home: ASGIApp) -> None:
        """Begin with the gateway of the cloud's own account and region."""
        self._gateways[self.atlas.home.account] = _gateway(home)

    @property
    def home(self) -> Gateway:
        """The gateway of the cloud's own account and region."""
        return self._gateways[self.atlas.home.account]

    def gateway(self, account: Account) -> Gateway:
        """The gateway of an account in a region of this cloud."""
        if account not in self._gateways:
            place = self.atlas.of(account)
            assert place is not None  # noqa: S101 - a region of this cloud
            self._gateways[account] = _gateway(self.make(account, place.name, self.variables[place.name]))
        return self._gateways[account]


def _gateway(made: ASGIApp) -> Gateway:
    assert isinstance(made, Gateway)  # noqa: S101 - the seam promises it
    return made
