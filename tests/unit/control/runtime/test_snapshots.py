"""Processes that are resumed from one snapshot of a function: they share nothing that must differ."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bench.cold_import import ENVIRONMENT
from muster.control.control_plane import ControlPlane
from muster.control.runtime.function import imported
from tests.support.template import ROOT


class Server(ThreadingHTTPServer):
    """A store that answers every GET, and the credentials of a function with snapshots. Both are on the loopback."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.calls: list[tuple[int, str]] = []
        """The port and the access key of each call: one port is one connection."""
        self.keys = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        if self.path == "/credentials":
            # Only the last ones are still valid when they are used.
            self.server.keys += 1
            ends = "2099-01-01T00:00:00Z" if self.server.keys > 1 else "2001-01-01T00:00:00Z"
            key = f"AKIA{self.server.keys}"
            body = {"AccessKeyId": key, "SecretAccessKey": "secret", "Token": "token", "Expiration": ends}
            self.answer(json.dumps(body).encode())
            return
        signed = self.headers["Authorization"].partition("Credential=")[2].partition("/")[0]
        self.server.calls.append((self.client_address[1], signed))
        self.answer(b"here")

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on the tests' output."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


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
def plane(server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[], ControlPlane]:
    """Makes the control plane of a function, as its import does, with the credentials of a function with snapshots."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    own = {name: value for name, value in ENVIRONMENT.items() if not name.startswith("AWS_")}
    addresses = {"AWS_ENDPOINT_URL": server.url, "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{server.url}/credentials"}
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
    plane: Callable[[], ControlPlane], server: Server, restore: Callable[[], None]
) -> None:
    function = plane()
    fetch(function)
    fetch(function)
    restore()
    fetch(function)
    ports = [port for port, _ in server.calls]
    assert ports[0] == ports[1] != ports[2]


def test_credentials_that_have_ended_since_are_replaced_before_the_first_call(
    plane: Callable[[], ControlPlane], server: Server, restore: Callable[[], None]
) -> None:
    function = plane()
    assert server.keys == 1  # the client has been created with those of the snapshot
    restore()
    fetch(function)
    assert [key for _, key in server.calls] == ["AKIA2"]


def test_nothing_is_registered_where_no_snapshot_is_taken(plane: Callable[[], ControlPlane]) -> None:
    before = random.getstate()
    imported()
    plane()
    assert "snapshot_restore_py" not in sys.modules
    assert random.getstate() == before


_PROGRAM = """
import os, random, sys, types
hooks = []
runtime = sys.modules["snapshot_restore_py"] = types.ModuleType("snapshot_restore_py")
runtime.register_after_restore = hooks.append
import muster.lambdas.{name}
print(random.seed in hooks, sum(getattr(hook, "__name__", "") == "drop_connections" for hook in hooks))
"""


@pytest.mark.parametrize("name", ["attempt", "react"])
def test_the_functions_with_snapshots_register_both(name: str) -> None:
    environment = {**ENVIRONMENT, "AWS_LAMBDA_INITIALIZATION_TYPE": "snap-start"}
    command = [sys.executable, "-c", _PROGRAM.format(name=name)]
    outcome = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert outcome.stdout.split() == ["True", "1"], outcome.stderr


def test_a_runtime_without_hooks_publishes_no_version() -> None:
    environment = {**ENVIRONMENT, "AWS_LAMBDA_INITIALIZATION_TYPE": "snap-start"}
    command = [sys.executable, "-c", "import muster.lambdas.react"]
    outcome = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert outcome.returncode != 0
    assert "No module named 'snapshot_restore_py'" in outcome.stderr
