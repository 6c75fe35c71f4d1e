"""An embedded Kubernetes cluster as a part of the service: its objects, and the server of its API."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

from hypercorn.asyncio import serve

from muster.local.certificate_authority import create_certificates, listening, tls_config
from muster.local.counted_calls import CallLog
from muster.local.ministack.host import Account
from muster.local.service.fault_book import FaultBook
from muster.options.hyperpod.local.eks import embedded_clusters
from muster.options.hyperpod.local.kubernetes.application import VERSION, KubernetesApi
from muster.options.hyperpod.local.kubernetes.object_store import ObjectStore

_HOST = "127.0.0.1"


class KubernetesServer:
    """An EKS cluster with its API. Make it in the service's process when MiniStack is ready, then `start` it."""

    def __init__(self, account: Account, name: str, directory: Path, faults: FaultBook, calls: CallLog) -> None:
        """A new cluster; `name` is that of the EKS cluster, and `directory` of its certificates.

        `faults` may hold a KubernetesError, and its calls are counted in `calls`.
        """
        self.store = ObjectStore()
        authenticate = embedded_clusters.authenticator(account, name)
        self._api = KubernetesApi(name, self.store, authenticate, faults, calls)
        self._certificates = create_certificates(directory, _HOST)
        self._listener = listening(_HOST, 0)
        endpoint = f"https://{_HOST}:{self._listener.getsockname()[1]}"
        authority = base64.b64encode(self._certificates.authority.read_bytes()).decode()
        embedded_clusters.register(account, name, endpoint, authority, VERSION)

    def start(self) -> asyncio.Task[None]:
        """Serve the API in the loop that runs. Keep the task: the loop does not."""
        config = tls_config(self._listener, self._certificates)
        served = serve(self._api, config, shutdown_trigger=asyncio.Event().wait)  # type: ignore[arg-type]  # as in daemon.py
        return asyncio.create_task(served)
