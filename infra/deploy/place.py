"""Where a stack is deployed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """An account and region; `dns_suffix` ends the names of the partition's endpoints."""

    partition: str
    account: str
    region: str
    dns_suffix: str = "amazonaws.com"

    def arn(self, service: str) -> str:
        """The beginning of the ARNs of a service here, up to the account."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}"
