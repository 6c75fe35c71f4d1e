"""MiniStack for another partition than `aws`.

MiniStack writes `arn:aws:` into every ARN. In a region of another partition its source is read with that partition's
name instead, so that its ARNs, its CloudFormation and its managed policies are those of the partition.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

import botocore.session
from botocore.exceptions import UnknownRegionError

from muster.contract.aws.partitions import dns_suffix

_PACKAGE = "ministack"


@cache
def partition_of(region: str) -> str:
    """The partition of a region; `aws` for one that botocore does not know."""
    try:
        return str(botocore.session.get_session().get_partition_for_region(region))
    except UnknownRegionError:
        return "aws"


def read_for_region(region: str) -> None:
    """Let MiniStack be imported for the partition of `region`. Call it before its first import."""
    if partition_of(region) != "aws":
        sys.meta_path.insert(0, _Finder(partition_of(region), dns_suffix(region)))


def in_partition(source: str, partition: str, domain: str) -> str:
    """MiniStack's source with the name and the domain of another partition."""
    return (
        source.replace("arn:aws:", f"arn:{partition}:")
        .replace('"AWS::Partition": "aws"', f'"AWS::Partition": "{partition}"')
        .replace('"AWS::URLSuffix": "amazonaws.com"', f'"AWS::URLSuffix": "{domain}"')
        .replace('partition != "aws"', f'partition != "{partition}"')
        # The endpoint for which tokens of EKS are signed.
        .replace(r'\.amazonaws\.com", hostname', rf'\.{re.escape(domain)}", hostname')
        .replace('f"sts.{credential_scope[2]}.amazonaws.com"', f'f"sts.{{credential_scope[2]}}.{domain}"')
    )


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, *partition_and_domain: str) -> None:
        super().__init__(name, path)
        self._place = partition_and_domain

    def get_code(self, fullname: str) -> CodeType:
        """Compiled anew: the cached bytecode is that of the partition `aws`."""
        path = self.get_filename(fullname)
        source = self.get_data(path).decode()
        return compile(in_partition(source, *self._place), path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, partition: str, domain: str) -> None:
        self._place = partition, domain

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.split(".", maxsplit=1)[0] != _PACKAGE:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader) and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, *self._place)
        return spec
