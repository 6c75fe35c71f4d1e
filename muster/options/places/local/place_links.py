"""The links between the places: whether they are open, how long a call takes, and the bytes that went over each."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import product
from typing import NamedTuple

from starlette.types import Message, Receive, Send

from muster.local.faults import DarkRegion, Partition, SlowLink
from muster.local.service.fault_book import FaultBook
from muster.options.places.local.atlas import Atlas, Place
from muster.options.places.local.link_settings import LinkBytes, LinkSettings

# Sleeps are not exact below this: a transfer that is ahead of its link by less goes on.
_SHORTEST_SLEEP = 0.002
_TURN_SECONDS = 0.01  # transfers on a link take turns, so that a small one need not wait for the end of a large one


class Pair(NamedTuple):
    """Two places, in the direction of a transfer."""

    source: Place
    target: Place

    @property
    def back(self) -> Pair:
        """The other direction."""
        return Pair(self.target, self.source)

    @property
    def crosses(self) -> bool:
        """Whether the places are in different regions."""
        return self.source.account.region != self.target.account.region

    @property
    def names(self) -> tuple[str, str]:
        """Both names."""
        return self.source.name, self.target.name


class Links:
    """The links of a cloud. Used from its event loop."""

    def __init__(self, atlas: Atlas, links: Sequence[LinkSettings], faults: FaultBook) -> None:
        self._atlas = atlas
        self._links = tuple(links)
        self._faults = faults
        self._bytes: Counter[tuple[str, str]] = Counter()
        self._free_at: dict[tuple[str, str], float] = {}

    def set(self, links: Sequence[LinkSettings]) -> None:
        """Replace the settings of all links."""
        self._links = tuple(links)

    def report(self) -> list[LinkBytes]:
        """The bytes of each direction that was used, sorted."""
        return [
            LinkBytes(source=source, target=target, bytes=count)
            for (source, target), count in sorted(self._bytes.items())
        ]

    def reset(self) -> None:
        """Count from zero again."""
        self._bytes.clear()

    def cut(self, pair: Pair, *, call: bool) -> DarkRegion | Partition | None:
        """The fault that cuts two places off from each other, counted if it is a `call` that meets it."""
        if not pair.crosses:
            return None
        here, there = (self._atlas.in_region(place.account.region) for place in pair)
        meets = FaultBook.take if call else FaultBook.find
        for place in (*here, *there):
            if dark := meets(self._faults.at(place.name), DarkRegion, lambda _fault: True):
                return dark
        for one, other in ((one, other) for ends in ((here, there), (there, here)) for one, other in product(*ends)):
            if parted := meets(self._faults.at(one.name), Partition, partial(_leads_to, other)):
                return parted
        return None

    def latency(self, pair: Pair) -> float:
        """Seconds that a call over the link takes longer, with its answer."""
        seconds = self._link(pair).latency_seconds if pair.crosses else 0.0
        self._faults.at(pair.source.name).take(SlowLink, partial(_leads_to, pair.target))
        return seconds

    def incoming(self, receive: Receive, pair: Pair) -> Receive:
        """A `receive` whose body comes over the link."""

        async def received() -> Message:
            message = await receive()
            await self.carry(pair, len(message.get("body", b"")))
            return message

        return received

    def outgoing(self, send: Send, pair: Pair) -> Send:
        """A `send` whose body goes over the link."""

        async def sent(message: Message) -> None:
            await self.carry(pair, len(message.get("body", b"")))
            await send(message)

        return sent

    async def carry(self, pair: Pair, size: int) -> None:
        """Count bytes that go over the link, and take as long as they do."""
        if not size:
            return
        self._bytes[pair.names] += size
        rate = self._link(pair).bytes_per_second if pair.crosses else None
        if rate is None:
            return
        left = size
        while left:
            part = min(left, max(1, int(rate * _TURN_SECONDS)))
            left -= part
            now = time.monotonic()
            free_at = max(now, self._free_at.get(pair.names, 0.0)) + part / rate
            self._free_at[pair.names] = free_at
            if free_at - now > _SHORTEST_SLEEP:
                await asyncio.sleep(free_at - now)

    def _link(self, pair: Pair) -> LinkSettings:
        source, target = pair.names
        link = next((link for link in self._links if link.leads(source, target)), LinkSettings())
        slow = self._faults.at(source).find(SlowLink, partial(_leads_to, pair.target))
        if slow is None:
            return link
        rates = [rate for rate in (link.bytes_per_second, slow.bytes_per_second) if rate is not None]
        latency = link.latency_seconds + slow.latency_seconds
        return LinkSettings(latency_seconds=latency, bytes_per_second=min(rates, default=None))


def _leads_to(place: Place, fault: Partition | SlowLink) -> bool:
    return fnmatchcase(place.name, fault.other)
