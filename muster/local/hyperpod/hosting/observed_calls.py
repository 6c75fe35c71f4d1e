"""Calls of the Kubernetes API: counted with those of the endpoint, and compared with the faults."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from muster.local.calls import Call, CallLog
from muster.local.faults import KubernetesError
from muster.local.kubernetes.rights.users import User
from muster.local.kubernetes.server.request_info import RequestInfo
from muster.local.service.fault_book import FaultBook

SERVICE = "kubernetes"


@dataclass(frozen=True)
class ObservedCalls:
    """A CallObserver of one cluster."""

    cluster: str
    calls: CallLog
    faults: FaultBook

    def count(self, info: RequestInfo, user: User) -> None:
        """Count a request."""
        self.calls.add(Call(SERVICE, f"{info.verb} {_resource(info)}"), user.principal)

    def take_fault(self, info: RequestInfo, user: User) -> KubernetesError | None:
        """The fault for a request, if any."""

        def matches(fault: KubernetesError) -> bool:
            return (
                fnmatchcase(self.cluster, fault.cluster)
                and fnmatchcase(info.verb, fault.verb)
                and fnmatchcase(_resource(info), fault.resource)
                and fnmatchcase(info.namespace, fault.namespace)
                and fnmatchcase(info.name, fault.name)
                and fnmatchcase(user.principal, fault.caller)
            )

        return self.faults.take(KubernetesError, matches)


def _resource(info: RequestInfo) -> str:
    if not info.resource:
        return info.path
    return f"{info.resource}/{info.subresource}" if info.subresource else info.resource
