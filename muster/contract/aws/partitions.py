"""AWS's partitions: separate clouds, each with accounts, regions and domains of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# The partitions whose endpoints have another domain, by the beginning of their regions' names (botocore's
# partitions.json). aws-us-gov has the domain of aws.
_OTHER_DOMAINS = {
    "cn-": "amazonaws.com.cn",
    "eusc-": "amazonaws.eu",
    "us-iso-": "c2s.ic.gov",
    "us-isob-": "sc2s.sgov.gov",
    "eu-isoe-": "cloud.adc-e.uk",
    "us-isof-": "csp.hci.ic.gov",
}
_DOMAIN = "amazonaws.com"

CONSOLE_DOMAINS: Mapping[str, str] = {
    "aws": "console.aws.amazon.com",
    "aws-cn": "console.amazonaws.cn",
    "aws-us-gov": "console.amazonaws-us-gov.com",
}
"""The domain of the console in each partition that people reach through the internet."""


@dataclass(frozen=True)
class Locality:
    """The partition, region and account in which a run takes place, or a stack is deployed."""

    partition: str
    region: str
    account: str

    @classmethod
    def of_arn(cls, arn: str) -> Locality:
        """Where the resource with this ARN is."""
        _, partition, _, region, account, *_ = arn.split(":")
        return cls(partition, region, account)

    @property
    def dns_suffix(self) -> str:
        """The domain of the endpoints and registries here."""
        return dns_suffix(self.region)

    def arn(self, service: str) -> str:
        """The beginning of the ARNs of a service here, up to the account."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}"


def dns_suffix(region: str) -> str:
    """The domain of the endpoints and registries in a region, of any partition."""
    return next((domain for start, domain in _OTHER_DOMAINS.items() if region.startswith(start)), _DOMAIN)


def console_base(partition: str, region: str) -> str:
    """The beginning of every console address of a region; an unknown partition gets that of `aws`."""
    return f"https://{region}.{CONSOLE_DOMAINS.get(partition, CONSOLE_DOMAINS['aws'])}"
