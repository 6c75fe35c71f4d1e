"""How the servers of the embedded cloud serve: TLS and HTTP/1.1 on a socket that listens already."""

from __future__ import annotations

import socket
from pathlib import Path

from hypercorn.config import Config

_KEEP_ALIVE_SECONDS = 75.0


def tls_config(listener: socket.socket, certificate: Path, key: Path) -> Config:
    """The configuration of a server with a certificate."""
    config = Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.certfile = str(certificate)
    config.keyfile = str(key)
    config.alpn_protocols = ["http/1.1"]
    config.keep_alive_timeout = _KEEP_ALIVE_SECONDS
    return config
