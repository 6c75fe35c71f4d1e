"""The Kubernetes API of one embedded cluster as a part of the service: its tokens, its counts, its faults."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from muster.local.counted_calls import Call, CallLog
from muster.local.faults import KubernetesError
from muster.local.ministack.host import Account
from muster.local.service.fault_book import FaultBook
from muster.options.hyperpod.local.eks import embedded_clusters
from muster.options.hyperpod.local.eks.pod_identities import PodIdentities
from muster.options.hyperpod.local.kubernetes.cluster import KubernetesCluster
from muster.options.hyperpod.local.kubernetes.rights.users import Attributes, User
from muster.options.hyperpod.local.kubernetes.server.application import VERSION

if TYPE_CHECKING:
    from muster.options.hyperpod.local.kubernetes.objects.object_store import ObjectStore

SERVICE = "kubernetes"
"""As calls are counted: `kubernetes`, `create hyperpodpytorchjobs`."""


@dataclass(frozen=True)
class _Observer:
    cluster: str
    faults: FaultBook
    calls: CallLog

    def count(self, info: Attributes, user: User) -> None:
        what = info.path or info.full_resource
        self.calls.add(Call(SERVICE, f"{info.verb} {what}"), _caller(user))

    def take_fault(self, info: Attributes, user: User) -> KubernetesError | None:
        def matches(fault: KubernetesError) -> bool:
            pairs = (
                (self.cluster, fault.cluster),
                (info.verb, fault.verb),
                (info.full_resource, fault.resource),
                (info.namespace, fault.namespace),
                (info.name, fault.name),
                (_caller(user), fault.caller),
            )
            return not info.path and all(fnmatchcase(value, pattern) for value, pattern in pairs)

        return self.faults.take(KubernetesError, matches)


def _caller(user: User) -> str:
    return user.principal or user.name


class KubernetesServer:
    """An EKS cluster with its API. Make it in the service's process when MiniStack is ready, then `start` it."""

    def __init__(self, account: Account, name: str, directory: Path, faults: FaultBook, calls: CallLog) -> None:
        """A new cluster.

        Args:
            account: where EKS has it.
            name: of the EKS cluster.
            directory: of its certificates.
            faults: may hold a KubernetesError.
            calls: where its calls are counted.
        """
        self._account = account
        self._cluster = KubernetesCluster(name, directory)
        self._observer = _Observer(name, faults, calls)
        self.identities = PodIdentities(account, name)
        """The credentials of its pods."""
        embedded_clusters.register(account, name, self._cluster.endpoint, self._cluster.authority, VERSION)

    @property
    def store(self) -> ObjectStore:
        """Its objects."""
        return self._cluster.store

    def start(self) -> asyncio.Task[None]:
        """Serve the API in the loop that runs. Keep the task: the loop does not."""
        authenticate = embedded_clusters.authenticator(self._account, self._cluster.name)
        return asyncio.create_task(self._cluster.serve(authenticate, self._observer))
