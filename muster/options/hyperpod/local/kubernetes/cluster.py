"""An embedded Kubernetes cluster: its objects, and the server of its API."""

from __future__ import annotations

import asyncio
import base64
import socket
from pathlib import Path

from hypercorn.asyncio import serve

from muster.local.certificate_authority import create_certificates, tls_config
from muster.options.hyperpod.local.kubernetes.objects.object_store import ObjectStore
from muster.options.hyperpod.local.kubernetes.server.application import Authenticate, CallObserver, KubernetesApi

HOST = "127.0.0.1"


class KubernetesCluster:
    """The objects of a cluster, its certificate authority, and its address."""

    def __init__(self, name: str, directory: Path) -> None:
        """A new cluster.

        Args:
            name: of the EKS cluster.
            directory: where its certificates are kept.
        """
        self.name = name
        self._certificates = create_certificates(directory, HOST)
        self.store = ObjectStore()
        self._listener = _listen()

    @property
    def endpoint(self) -> str:
        """`https://127.0.0.1:PORT`."""
        return f"https://{HOST}:{self._listener.getsockname()[1]}"

    @property
    def authority(self) -> str:
        """The certificate of the cluster's authority, as DescribeCluster has it."""
        return base64.b64encode(self._certificates.authority.read_bytes()).decode()

    async def serve(self, authenticate: Authenticate, observer: CallObserver) -> None:
        """Serve the API until the task is cancelled."""
        application = KubernetesApi(self.store, authenticate, observer)
        config = tls_config(self._listener, self._certificates)
        await serve(application, config, shutdown_trigger=asyncio.Event().wait)  # type: ignore[arg-type]  # as in daemon.py


def _listen() -> socket.socket:
    """A listening socket on a free port of the loopback interface."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.bind((HOST, 0))
    listener.listen(512)
    return listener
