"""The live page's server: on the loopback interface alone, for its own name alone, one look for all windows."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import replace
from threading import Thread

import pytest

from bench.sample_run import sample_run
from muster.client import page_server
from muster.client.errors import PortError, UnreachableError
from muster.client.page_server import PageServer
from muster.report.make import make_page
from muster.report.model import Page


class Source:
    """A run that somebody looks at."""

    def __init__(self) -> None:
        self.sight = replace(sample_run(2, 3), state="running", ended_at=None)
        self.looks = 0
        self.tag = "one"
        self.trouble: Exception | None = None

    def look(self) -> Page:
        self.looks += 1
        if self.trouble:
            raise self.trouble
        return make_page(self.sight)


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def server(source: Source) -> Iterator[PageServer]:
    with PageServer(source) as running:
        thread = Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def ask(server: PageServer, path: str, **headers: str) -> tuple[int, bytes, str | None]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    try:
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.getheader("ETag")
    finally:
        connection.close()


def test_the_page_asks_for_data_and_gets_it_once_for_each_change(
    server: PageServer, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, body, _ = ask(server, "/")
    assert status == 200
    assert b'data-mode="live"' in body
    status, body, tag = ask(server, "/data.json")
    assert (status, json.loads(body)["state"], tag) == (200, "running", '"one"')
    assert source.looks == 1
    monkeypatch.setattr(page_server, "LOOK_SECONDS", -1.0)
    assert ask(server, "/data.json", If_None_Match='"one"')[:2] == (304, b"")
    source.tag = "two"
    assert ask(server, "/data.json", If_None_Match='"one"')[2] == '"two"'


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", ""])
def test_another_host_s_name_is_refused(server: PageServer, source: Source, host: str) -> None:
    status, body, _ = ask(server, "/data.json", Host=host.format(port=server.server_port))
    assert (status, body) == (403, b"another host's page\n")
    assert source.looks == 0
    assert ask(server, "/", Host=f"localhost:{server.server_port}")[0] == 200


def test_it_listens_on_this_machine_alone_and_serves_nothing_else(server: PageServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert ask(server, "/etc/passwd")[0] == 404
    assert ask(server, "/../data.json")[0] == 404


def test_trouble_with_the_cloud_is_told_and_passes(server: PageServer, source: Source) -> None:
    source.trouble = UnreachableError("nothing answers")
    status, body, _ = ask(server, "/data.json")
    assert status == 502
    assert b"nothing answers" in body
    source.trouble = None
    assert ask(server, "/data.json")[0] == 200


def test_a_port_that_is_taken_is_one_line(server: PageServer, source: Source) -> None:
    with pytest.raises(PortError, match=f"port {server.server_port}: address already in use. Name another with --port"):
        PageServer(source, server.server_port)
