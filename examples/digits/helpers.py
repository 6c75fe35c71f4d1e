"""The processes of a replica beside the first one: they compute gradients of their parts of each batch.

The first process sends the parameters and the numbers of the examples; a helper answers with its gradients. So a helper
holds nothing between two steps, and a replica can continue with more of them, or fewer. PyTorch's users have
`torch.distributed` for this.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from io import IOBase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from examples.digits.dataset import Examples
from examples.digits.model import Arrays, Classifier

_TIMEOUT_SECONDS = 60.0
_RETRY_SECONDS = 0.05
_MESSAGE_BYTES = 1 << 18
Array = NDArray[Any]


class Helpers:
    """The helpers of the first process; none in a replica of one process."""

    def __init__(self, count: int) -> None:
        self._connections: list[socket.socket] = []
        self._files: list[IOBase] = []
        if not count:
            return
        with socket.create_server(_address(), backlog=count) as server:
            server.settimeout(_TIMEOUT_SECONDS)
            for _ in range(count):
                connection, _ = server.accept()
                self._connections.append(connection)
                self._files.append(_file(connection))

    def loss_and_gradients(self, model: Classifier, examples: Examples, drawn: Array) -> tuple[float, Arrays]:
        """The mean loss of the examples that were drawn, and its gradients; every process computes a part of them."""
        parts = np.array_split(drawn, 1 + len(self._files))
        for file, part in zip(self._files, parts[1:], strict=True):
            _send(file, [part, *model.parameters.values()])
        found = [model.loss_and_gradients(examples[parts[0]])]
        for file in self._files:
            loss, *gradients = _receive(file, 1 + len(model.parameters))
            found.append((float(loss), dict(zip(model.parameters, gradients, strict=True))))
        shares = np.array([len(part) / len(drawn) for part in parts], np.float32)
        mean_loss = sum(float(share) * loss for share, (loss, _) in zip(shares, found, strict=True))
        return mean_loss, {
            name: np.tensordot(shares, np.stack([gradients[name] for _, gradients in found]), axes=1)
            for name in model.parameters
        }

    def close(self) -> None:
        """Let the helpers return."""
        for file, connection in zip(self._files, self._connections, strict=True):
            file.close()
            connection.close()


def help_first(model: Classifier, examples: Examples) -> None:
    """What a process beside the first one does, until the first one closes the connection."""
    with _connected() as connection, _file(connection) as file:
        for drawn, *parameters in _requests(file, 1 + len(model.parameters)):
            for mine, sent in zip(model.parameters.values(), parameters, strict=True):
                mine[...] = sent
            loss, gradients = model.loss_and_gradients(examples[drawn])
            _send(file, [np.float64(loss), *gradients.values()])


def _address() -> tuple[str, int]:
    # The port itself is PyTorch's, where it is installed.
    return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + 1


def _connected() -> socket.socket:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while True:
        try:
            return socket.create_connection(_address(), timeout=_TIMEOUT_SECONDS)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_SECONDS)


def _file(connection: socket.socket) -> IOBase:
    connection.settimeout(_TIMEOUT_SECONDS)
    # A step sends one message each way, which must not wait until there is more to send.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection.makefile("rwb", buffering=_MESSAGE_BYTES)


def _requests(file: IOBase, count: int) -> Iterator[list[Array]]:
    while True:
        try:
            yield _receive(file, count)
        except (ValueError, OSError):  # NumPy reports the end of a file as a ValueError
            return


def _send(file: IOBase, arrays: Sequence[Any]) -> None:
    for array in arrays:
        np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
    file.flush()


def _receive(file: IOBase, count: int) -> list[Array]:
    return [np.lib.format.read_array(file, allow_pickle=False) for _ in range(count)]
