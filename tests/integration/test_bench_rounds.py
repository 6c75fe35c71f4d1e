"""The bench's S3 server, its groups of replicas and its model: what the figures rest on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from bench.rounds import recovery
from bench.rounds.group import BUCKET, client_environment, running_group
from bench.rounds.model import Site, flat_seconds, model_rows
from bench.rounds.schemes import SCHEMES
from bench.rounds.server import Server, running_server
from muster.replica.store.s3_store import S3ObjectStore
from muster.replica.store.transport import ObjectExistsError, ObjectMissingError


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as running:
        yield running


def test_the_server_keeps_what_s3_promises_and_counts_it(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in client_environment(server, "rank7").items():
        monkeypatch.setenv(name, value)
    store = S3ObjectStore(BUCKET, "run/")
    server.forget_requests()
    store.create("a/1", b"0123456789")
    with pytest.raises(ObjectExistsError):
        S3ObjectStore(BUCKET, "run/").create("a/1", b"other")  # by another connection: another process may answer
    assert bytes(store.read("a/1", 2, 5).body) == b"234"
    assert store.read("a/1").size == 10
    with pytest.raises(ObjectMissingError):
        store.read("a/2")
    assert store.keys("a/", "b") == ["a/1"]
    counted = [(r.caller, r.method, r.status, r.received, r.sent) for r in server.requests() if r.key.endswith("a/1")]
    assert counted[0] == ("rank7", "PUT", 200, 10, 0)
    assert ("rank7", "GET", 206, 0, 3) in counted
    assert ("rank7", "GET", 200, 0, 10) in counted
    store.delete(["a/1"])
    assert store.keys("a/", "b") == []


def test_every_scheme_averages_and_a_replica_can_be_killed(server: Server) -> None:
    with running_group(server, 3, 300_000) as group:
        for scheme in SCHEMES:
            group.prepare(scheme)
        digests = {
            scheme: {answer["mean"] for answer in group.round(scheme, digest=True).answers.values()}
            for scheme in SCHEMES
        }
        assert digests.pop("bare") == {None}
        # Muster weighs before it adds, in the order of ranks; the peers as they do it: each agrees with itself.
        assert len(digests["muster"]) == 1
        assert len(digests["scatter-reduce"]) == 1
        left = group.round("muster", {1: {"die_at": "reduced/"}}, digest=True).answers
        assert sorted(left) == [0, 2]
        assert len({answer["mean"] for answer in left.values()}) == 1


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("die_at", ["contributions/", "reduced/"])
def test_a_replica_is_killed_however_its_objects_are_sent(server: Server, die_at: str, after: bool) -> None:
    # A contribution of 20 MB is sent in parts, and a shard of a third of it while it is made.
    with running_group(server, 3, 5_000_000, grace_seconds=1.0) as group:
        group.prepare("muster")
        left = group.round("muster", {1: {"die_at": die_at, "after": after}}, digest=True).answers
        assert sorted(left) == [0, 2]
        assert len({answer["mean"] for answer in left.values()}) == 1


def test_the_model_knows_its_limits() -> None:
    size = 4e9
    site = Site(prefixes=256)
    assert flat_seconds(site, 256, size) < flat_seconds(replace(site, prefixes=1), 256, size)
    # No round beats what its bytes take at the host's bandwidth.
    assert flat_seconds(site, 64, size) > size * (1 + 2 * 63 / 64) / site.host_rate
    measured = {(n, 64): {"muster": 0.1 + 64 * n * 0.01 * (1 + 1 / n + 2 * (n - 1) / n)} for n in (4, 8, 16)}
    fit = model_rows(measured)[0]
    assert fit.value < 1e-6
    assert fit.ok


def test_a_recovery_moves_the_snapshot_and_the_rounds_after_it_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "_REPETITIONS", 1)
    [cost], moved = recovery._costs(server, 1, "recovered")
    # Parameters and momentum, and one mean.
    assert 3.0 <= moved < 3.2
    assert set(recovery._PHASES) < set(cost)
    assert cost["seconds"] > cost["own imports"] + cost["join"] > 0
