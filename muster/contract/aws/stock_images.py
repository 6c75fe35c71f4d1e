"""Images in ECR, and the accounts in which AWS keeps its Deep Learning Containers: one for most regions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from muster.contract.aws.partitions import dns_suffix

STOCK_ACCOUNT = "763104351884"
"""The account of every region of the partition `aws` that needs not be enabled first."""
STOCK_ACCOUNTS: Mapping[str, str] = {
    "af-south-1": "626614931356",
    "ap-east-1": "871362719292",
    "ap-east-2": "975050140332",
    "ap-northeast-3": "364406365360",
    "ap-south-2": "772153158452",
    "ap-southeast-3": "907027046896",
    "ap-southeast-4": "457447274322",
    "ap-southeast-5": "550225433462",
    "ap-southeast-7": "590183813437",
    "ca-west-1": "204538143572",
    "cn-north-1": "727897471807",
    "cn-northwest-1": "727897471807",
    "eu-central-2": "380420809688",
    "eu-south-1": "692866216735",
    "eu-south-2": "503227376785",
    "il-central-1": "780543022126",
    "me-central-1": "914824155844",
    "me-south-1": "217643126080",
    "mx-central-1": "637423239942",
    "us-gov-east-1": "446045086412",
    "us-gov-west-1": "442386744353",
}
"""The account of each other region (the SageMaker Python SDK's table of registries)."""


def stock_registry(region: str) -> str:
    """The registry of AWS's own images in a region; in a region that AWS opened since, the account may be another."""
    return registry(STOCK_ACCOUNTS.get(region, STOCK_ACCOUNT), region)


def is_stock_account(account: str) -> bool:
    """Whether AWS's own images are in this account, in some region."""
    return account == STOCK_ACCOUNT or account in STOCK_ACCOUNTS.values()


def registry(account: str, region: str) -> str:
    """The registry of an account in a region."""
    return f"{account}.dkr.ecr.{region}.{dns_suffix(region)}"


# A registry has a second name with `dkr-ecr` for IPv6, and one with `ecr-fips`.
_IMAGE = re.compile(r"([0-9]{12})\.dkr[.-]ecr(?:-fips)?\.([a-z0-9-]+)\.[a-z.]+?/([^:@]+)([:@].+)?", re.DOTALL)


@dataclass(frozen=True)
class EcrImage:
    """An image in a private registry of ECR; `version` is `:tag`, `@digest` or nothing."""

    account: str
    region: str
    repository: str
    version: str = ""

    @classmethod
    def parse(cls, uri: str) -> EcrImage | None:
        """The image that `uri` names; None if it is in no registry of ECR."""
        found = _IMAGE.fullmatch(uri)
        return None if found is None else cls(*found.groups(default=""))
