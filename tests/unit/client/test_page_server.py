"""The live page's server: on the loopback interface alone, for its own name alone, one look for all windows."""

import http.client
import json
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from muster.client.cli import page_server
from muster.client.cli.page_server import PageServer
from muster.client.client_errors import PortError, UnreachableError
from tests.support.live_run import LiveRun, served


@pytest.fixture
def run() -> LiveRun:
    return LiveRun()


@pytest.fixture
def server(run: LiveRun) -> Iterator[PageServer]:
    with served(run) as running:
        yield running


def ask(server: PageServer, path: str, **headers: str) -> tuple[int, bytes, str | None]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    try:
        connection.request(
            "GET",
            path.replace("/", server.path, 1),
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.getheader("ETag")
    finally:
        connection.close()


def test_the_page_asks_for_data_and_gets_it_once_for_each_change(
    server: PageServer, run: LiveRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_server, "LOOK_SECONDS", 3600.0)
    status, body, _ = ask(server, "/")
    assert status == 200
    assert b'data-mode="live"' in body
    status, body, tag = ask(server, "/data.json")
    assert (status, json.loads(body)["state"], tag) == (200, "running", '"running-3"')
    assert run.looks == 1
    monkeypatch.setattr(page_server, "LOOK_SECONDS", -1.0)
    assert ask(server, "/data.json", If_None_Match='"running-3"')[:2] == (304, b"")
    run.go_on(4)
    assert ask(server, "/data.json", If_None_Match='"running-3"')[2] == '"running-4"'


def test_another_host_s_name_is_refused(server: PageServer, run: LiveRun) -> None:
    for host in ("evil.example", f"evil.example:{server.server_port}", "127.0.0.1", ""):
        status, body, _ = ask(server, "/data.json", Host=host)
        assert (status, body) == (403, b"another host's page\n"), host
    assert run.looks == 0
    assert ask(server, "/", Host=f"localhost:{server.server_port}")[0] == 200


def test_it_listens_on_this_machine_alone_and_serves_nothing_else(server: PageServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert ask(server, "/etc/passwd")[0] == 404
    assert ask(server, "/../data.json")[0] == 404


def test_only_who_was_told_the_path_sees_the_page(server: PageServer, run: LiveRun) -> None:
    """Every user of the machine can connect."""
    for path in ("/", "/data.json", "/x/", f"{server.path[:-1]}x/", f"/{'x' * 22}/data.json"):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        connection.request("GET", path)
        assert connection.getresponse().status == 404, path
        connection.close()
    assert run.looks == 0
    assert ask(server, "/")[0] == 200


def test_trouble_with_the_cloud_is_shown_and_passes(server: PageServer, run: LiveRun) -> None:
    run.trouble = UnreachableError("nothing answers")
    status, body, _ = ask(server, "/data.json")
    assert status == 502
    assert b"nothing answers" in body
    run.trouble = None
    assert ask(server, "/data.json")[0] == 200


def test_a_browser_that_closes_its_connection_early_is_no_error(
    server: PageServer, run: LiveRun, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = [threading.Event(), threading.Event()]
    real = server.shutdown_request

    def shutdown(request: Any) -> None:
        real(request)
        next(one for one in ended if not one.is_set()).set()

    monkeypatch.setattr(server, "shutdown_request", shutdown)
    monkeypatch.setattr(page_server, "render", lambda *_, **__: bytes(50_000_000))
    with socket.create_connection(("127.0.0.1", server.server_port)) as browser:
        browser.sendall(f"GET {server.path} HTTP/1.1\r\nHost: localhost:{server.server_port}\r\n\r\n".encode())
        # A reset, as of a window that is closed.
        browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert ended[0].wait(60)
    assert capsys.readouterr().err == ""
    # Any other error is shown.
    run.trouble = ZeroDivisionError("a defect")
    monkeypatch.setattr(page_server, "LOOK_SECONDS", -1.0)
    with pytest.raises(http.client.RemoteDisconnected):
        ask(server, "/data.json")
    assert ended[1].wait(60)
    assert "ZeroDivisionError: a defect" in capsys.readouterr().err


def test_a_port_that_is_taken_is_named(server: PageServer, run: LiveRun) -> None:
    with pytest.raises(PortError, match=f"port {server.server_port}"):
        PageServer(run, server.server_port)
