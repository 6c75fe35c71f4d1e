"""The peers of the benchmarks at work: every S3 client, and torchft's own DiLoCo beside Muster's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from bench import store_clients, torchft_sync
from bench.peers.store_client import CLIENTS
from bench.rounds.group import BUCKET, client_environment
from bench.rounds.server import Server, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as running:
        yield running


def test_every_client_moves_all_bytes_both_ways(server: Server) -> None:
    server.forget_requests()
    turns = store_clients.moved(server, 9, 1)
    assert turns.keys() == CLIENTS.keys()
    assert all(turn["sent"].cpu > 0 and turn["received"].cpu > 0 for found in turns.values() for turn in found)
    requests = server.requests()
    for name in CLIENTS:
        key = f"{BUCKET}/clients/{name}/1"
        moved = [request for request in requests if request.key == key and request.status in {200, 206}]
        assert sum(request.received for request in moved if request.method == "PUT") >= 9 * 2**20, name
        assert sum(request.sent for request in moved if request.method == "GET") >= 9 * 2**20, name


@pytest.mark.parametrize("name", ["muster", "muster-one-put"])
def test_our_client_refuses_damaged_bytes(server: Server, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """What is measured includes the check of what was read."""
    for variable, value in client_environment(server, "rank0").items():
        monkeypatch.setenv(variable, value)
    client = CLIENTS[name](np.ones(400_000, np.float32))
    key = f"damaged/{name}"
    client.send(key)
    path = server.root / "objects" / BUCKET / key
    with path.open("r+b") as file:
        file.seek(1_000_000)
        file.write(b"\xff")
    with pytest.raises(ValueError, match="the checksum of block"):
        client.receive(key)


def test_both_systems_exchange_and_their_replicas_agree(server: Server) -> None:
    """Each exchange asserts that all replicas have the same parameters, and torchft's that it was committed."""
    rows = torchft_sync.rows(torchft_sync.synced(server, 2, 4, 1), 2, 4)
    moved = rows[-1]
    assert moved.value == pytest.approx(2.5, rel=0.05)
    assert moved.peer is not None
    assert moved.peer >= 2.0
