"""The server of an embedded Kubernetes API, and the EKS cluster by which it is found."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from hypercorn.asyncio import serve

from muster.local.certificate_authority import create_certificates, listening, tls_config
from muster.local.ministack.host import Account
from muster.options.hyperpod.local.eks import embedded_clusters
from muster.options.hyperpod.local.kubernetes.application import VERSION, KubernetesApi

_HOST = "127.0.0.1"


def open_server(
    account: Account, name: str, api: KubernetesApi, directory: Path
) -> Callable[[], Coroutine[Any, Any, None]]:
    """Make the EKS cluster `name`, when MiniStack is ready; what is returned serves its API.

    `directory` is that of its certificates.
    """
    certificates, listener = create_certificates(directory, _HOST), listening(_HOST, 0)
    endpoint = f"https://{_HOST}:{listener.getsockname()[1]}"
    authority = base64.b64encode(certificates.authority.read_bytes()).decode()
    embedded_clusters.register(account, name, endpoint, authority, VERSION)
    config = tls_config(listener, certificates)
    return partial(serve, api, config, shutdown_trigger=asyncio.Event().wait)  # type: ignore[arg-type]  # as in daemon.py
