"""The addresses of pods: each has its own on the loopback interface, so that all can listen on the same port."""

from __future__ import annotations

import ipaddress
import secrets
import threading

# Above those of training jobs (muster/local/sagemaker/instances.py).
_FIRST = int(ipaddress.IPv4Address("127.240.0.1"))
_COUNT = 2**20 - 3


class Addresses:
    """Addresses that no other pod of this cloud has; those of another cloud are likely others. Thread-safe."""

    def __init__(self) -> None:
        self._used: set[int] = set()
        self._lock = threading.Lock()

    def take(self) -> str:
        """A free address."""
        with self._lock:
            while True:
                number = _FIRST + secrets.randbelow(_COUNT)
                if number not in self._used and number % 256 not in {0, 255}:
                    self._used.add(number)
                    return str(ipaddress.IPv4Address(number))

    def give_back(self, address: str) -> None:
        """The pod has ended."""
        with self._lock:
            self._used.discard(int(ipaddress.IPv4Address(address)))
