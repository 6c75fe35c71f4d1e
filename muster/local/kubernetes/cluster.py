"""An embedded Kubernetes cluster: its objects, and the server of its API."""

from __future__ import annotations

import asyncio
import base64
import socket
from pathlib import Path

from hypercorn.asyncio import serve

from muster.local.kubernetes.authority import create_certificates
from muster.local.kubernetes.kinds.cluster_admission import ClusterAdmission
from muster.local.kubernetes.kinds.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CRDS, JOBS
from muster.local.kubernetes.kinds.roles import CLUSTER_ROLE_GROUPS
from muster.local.kubernetes.kinds.roles import CLUSTER_ROLES as FIRST_ROLES
from muster.local.kubernetes.objects.resource import NAMESPACES, Resource
from muster.local.kubernetes.objects.status_errors import Document
from muster.local.kubernetes.objects.store import ObjectStore
from muster.local.kubernetes.server.application import Authenticate, CallObserver, KubernetesApi
from muster.local.service.server_config import tls_config

HOST = "127.0.0.1"
_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease", "aws-hyperpod", "kueue-system")


class KubernetesCluster:
    """The objects of a cluster, its certificate authority, and its address."""

    def __init__(self, name: str, directory: Path) -> None:
        """A new cluster.

        Args:
            name: of the EKS cluster.
            directory: where its certificates are kept.
        """
        self.name = name
        self.certificates = create_certificates(directory, HOST)
        self.store = ObjectStore()
        self.store.admission = ClusterAdmission(self.store, self.certificates.authority.read_text())
        self._listener = _listen()
        for namespace in _NAMESPACES:
            self.store.create(NAMESPACES, {"metadata": {"name": namespace}})
        self._create_first_roles()
        self.store.create(CRDS, _definition(JOBS))

    @property
    def endpoint(self) -> str:
        """`https://127.0.0.1:PORT`."""
        return f"https://{HOST}:{self._listener.getsockname()[1]}"

    @property
    def authority(self) -> str:
        """The certificate of the cluster's authority, as DescribeCluster has it."""
        return base64.b64encode(self.certificates.authority.read_bytes()).decode()

    async def serve(self, authenticate: Authenticate, observer: CallObserver | None = None) -> None:
        """Serve the API until the task is cancelled."""
        application = KubernetesApi(self.store, authenticate, observer)
        config = tls_config(self._listener, self.certificates.server, self.certificates.key)
        await serve(application, config, shutdown_trigger=asyncio.Event().wait)  # type: ignore[arg-type]  # as in daemon.py

    def _create_first_roles(self) -> None:
        for name, rules in FIRST_ROLES.items():
            self.store.create(CLUSTER_ROLES, {"metadata": {"name": name}, "rules": rules})
        for name, groups in CLUSTER_ROLE_GROUPS.items():
            binding = {
                "metadata": {"name": name},
                "roleRef": {"kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "Group", "name": group} for group in groups],
            }
            self.store.create(CLUSTER_ROLE_BINDINGS, binding)


def _listen() -> socket.socket:
    """A listening socket on a free port of the loopback interface."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.bind((HOST, 0))
    listener.listen(512)
    return listener


def _definition(resource: Resource) -> Document:
    """The definition of a custom resource, as far as clients look at it."""
    names = {"plural": resource.plural, "kind": resource.kind}
    version = {"name": resource.version, "served": True, "storage": True}
    spec = {"group": resource.group, "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": resource.qualified}, "spec": spec}
