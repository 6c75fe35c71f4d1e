"""uv is given the settings that pip has: indexes, certificates, proxies, time-outs."""

import sys
from pathlib import Path

import pytest

from muster.infra.packages import pip_settings, uv_options, uv_pip, uv_variables

STRATEGY = ["--index-strategy", "unsafe-best-match"]


def test_what_overrides_what_is_as_in_pip() -> None:
    listing = (
        ":env:.find-links='/of/the/environment'\n"
        "download.cert='/of/another/command.pem'\n"
        "global.cert='/everywhere.pem'\n"
        "global.find-links='/everywhere'\n"
        "install.cert='/installing.pem'\n"
    )
    assert pip_settings(listing) == {"find-links": "/of/the/environment", "cert": "/installing.pem"}


def test_indexes_and_links_become_options_one_by_one() -> None:
    settings = {
        "index-url": "https://packages.example/simple",
        "extra-index-url": "https://a.example/simple\nfile:///b/simple",
        "find-links": "/wheels https://c.example/links",
        "trusted-host": "a.example",
    }
    assert uv_options(settings, {}) == [
        *("--default-index", "https://packages.example/simple"),
        *("--index", "https://a.example/simple", "--index", "file:///b/simple"),
        *("--find-links", "/wheels", "--find-links", "https://c.example/links"),
        *("--allow-insecure-host", "a.example"),
        *STRATEGY,
    ]


def test_what_is_set_for_uv_itself_wins() -> None:
    settings = {"index-url": "https://pip.example/simple", "find-links": "/wheels"}
    environment = {"UV_DEFAULT_INDEX": "https://uv.example/simple", "UV_INDEX_STRATEGY": "first-index"}
    assert uv_options(settings, environment) == ["--find-links", "/wheels"]
    assert uv_options({"no-index": "1"}, {}) == ["--no-index", *STRATEGY]
    assert uv_options({"no-index": "false"}, {}) == STRATEGY


def test_the_connection_is_the_one_that_pip_makes() -> None:
    settings = {
        "cert": "/company.pem",
        "client-cert": "/mine.pem",
        "proxy": "http://proxy:8080",
        "default-timeout": "9",
    }
    assert uv_variables(settings) == {
        "SSL_CERT_FILE": "/company.pem",
        "SSL_CLIENT_CERT": "/mine.pem",
        "ALL_PROXY": "http://proxy:8080",
        "UV_HTTP_TIMEOUT": "9",
    }


def test_the_settings_of_this_machine_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pip.conf"
    file.write_text("[global]\ncert = /company.pem\n[install]\nextra-index-url = https://a.example/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    monkeypatch.delenv("PIP_CERT", raising=False)
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    command, environment = uv_pip(["install", "--quiet", "package"])
    assert command[1:3] == ["pip", "install"]
    assert command[-2:] == ["--quiet", "package"]
    assert "https://a.example/simple" in command
    assert command[command.index("--find-links") + 1] == "/wheels"
    assert (environment["SSL_CERT_FILE"], environment["VIRTUAL_ENV"]) == ("/company.pem", sys.prefix)
