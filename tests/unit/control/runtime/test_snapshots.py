"""Processes that are resumed from one snapshot of a function: they share nothing that must differ."""

import json
import random
import sys
import types
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from bench.cold_import import ENVIRONMENT
from muster.control.control_plane import ControlPlane
from muster.control.runtime.function import imported
from tests.support.s3_server import S3Server, s3_server


@pytest.fixture
def server() -> Iterator[S3Server]:
    """An object, and the credentials of a function with snapshots: only the second ones are still valid when used."""

    def credentials(number: int, ends: str) -> None:
        keys = {"AccessKeyId": f"AKIA{number}", "SecretAccessKey": "secret", "Token": "token", "Expiration": ends}
        made.put("credentials", json.dumps(keys).encode())

    with s3_server() as made:
        made.put("key", b"here")
        credentials(1, "2001-01-01T00:00:00Z")
        asked = "GET", "credentials"
        second = partial(credentials, 2, "2099-01-01T00:00:00Z")
        made.before[asked] = lambda: made.before.update({asked: second})
        yield made


@pytest.fixture
def restore(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Calls what was registered in this process, as Lambda's runtime does after a restore."""
    hooks: list[Callable[[], object]] = []
    runtime = types.ModuleType("snapshot_restore_py")
    runtime.register_after_restore = hooks.append  # type: ignore[attr-defined]  # the module has nothing else of ours
    monkeypatch.setitem(sys.modules, "snapshot_restore_py", runtime)
    monkeypatch.setenv("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start")

    def call() -> None:
        assert hooks
        for hook in hooks:
            hook()

    return call


@pytest.fixture
def plane(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[], ControlPlane]:
    """Makes the control plane of a function, as its import does, with the credentials of a function with snapshots."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    own = {name: value for name, value in ENVIRONMENT.items() if not name.startswith("AWS_")}
    url = f"http://127.0.0.1:{server.port}"
    addresses = {"AWS_ENDPOINT_URL": url, "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{url}/credentials"}
    for name, value in {**own, **addresses, "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    return lambda: ControlPlane.from_environment("s3")


def fetch(plane: ControlPlane) -> None:
    plane.clients.s3.get_object(Bucket="bucket", Key="key")["Body"].read()


def test_two_processes_of_a_snapshot_draw_different_numbers(restore: Callable[[], None]) -> None:
    imported()
    snapshot = random.getstate()
    drawn = []
    for resume in (lambda: None, lambda: None, restore, restore):
        random.setstate(snapshot)
        resume()
        drawn.append(random.uniform(0, 1))  # noqa: S311 - what is tested
    assert drawn[0] == drawn[1]  # what would happen without
    assert len(set(drawn)) == 3


def test_no_connection_of_the_snapshot_is_used_again(
    plane: Callable[[], ControlPlane], server: S3Server, restore: Callable[[], None]
) -> None:
    function = plane()
    fetch(function)
    before = server.connections
    fetch(function)
    assert server.connections == before
    restore()
    fetch(function)
    assert server.connections > before


def test_credentials_that_have_ended_since_are_replaced_before_the_first_call(
    plane: Callable[[], ControlPlane], server: S3Server, restore: Callable[[], None]
) -> None:
    function = plane()
    assert server.count("GET", "credentials") == 1  # the client has been created with those of the snapshot
    restore()
    fetch(function)
    [call] = [request for request in server.requests if request.key == "key"]
    assert "Credential=AKIA2/" in call.headers["authorization"]
