"""Where Muster builds, and the CDK on this machine: node is old or missing, the CLI is installed once."""

import hashlib
from pathlib import Path

import pytest

import muster
from muster.infra import build_places
from muster.infra.deploy import cdk_tools
from muster.infra.deploy.cdk_tools import DeployError, NodeMissingError, cdk_program, require_node

LOCK = Path(cdk_tools.__file__).with_name("cdk_cli") / "package-lock.json"


def program(folder: Path, name: str, lines: str) -> None:
    """An executable shell script."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{lines}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Muster is installed, with node 22 on a PATH that has nothing else; gives the environment."""
    monkeypatch.setattr(cdk_tools, "CLONE", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program(tmp_path / "bin", "node", "echo v22.1.0")
    return {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}


def cache(tmp_path: Path) -> Path:
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]
    return tmp_path / "cache" / "muster" / "cdk-cli" / digest


def test_a_node_that_the_cdk_cannot_use_is_one_error_and_a_newer_one_is_as_good(tmp_path: Path) -> None:
    wrong = {"echo v18.20.4": "v18.20.4", "echo v8.0.0": "v8.0.0", "exit 1": "which does not start"}
    for lines, found in wrong.items():
        program(tmp_path, "node", lines)
        with pytest.raises(NodeMissingError, match=f"needs node 20 or newer.* is {found}|{found}"):
            require_node(str(tmp_path))
    for version in ("v20.0.0", "v22.14.1", "v110.0.0"):
        program(tmp_path, "node", f"echo {version}")
        require_node(str(tmp_path))


def test_the_cli_is_installed_once_below_the_users_cache(tmp_path: Path, installed: dict[str, str]) -> None:
    calls = tmp_path / "calls"
    make = 'mkdir -p node_modules/.bin && touch node_modules/.bin/cdk && cat package.json > /dev/null && echo "$@" >> '
    program(tmp_path / "bin", "npm", make + str(calls))
    cli = cdk_program(installed)
    assert cli == cache(tmp_path) / "node_modules" / ".bin" / "cdk"
    assert cli.exists()
    assert (cache(tmp_path) / "package-lock.json").read_bytes() == LOCK.read_bytes()
    assert cdk_program(installed) == cli
    [call] = calls.read_text(encoding="utf-8").splitlines()
    assert call.startswith("ci --omit=dev ")  # what checks a clone stays out


def test_an_installation_that_fails_leaves_nothing_and_is_tried_again(
    tmp_path: Path, installed: dict[str, str]
) -> None:
    with pytest.raises(DeployError, match=r"npm is not on the PATH\. "):
        cdk_program({**installed, "PATH": str(tmp_path / "bin")})
    program(tmp_path / "bin", "npm", "mkdir node_modules; echo 'npm error code ENOTFOUND' >&2; exit 1")
    with pytest.raises(DeployError, match=r"npm cannot install the CDK CLI into .*: npm error code ENOTFOUND$"):
        cdk_program(installed)
    assert not list(cache(tmp_path).parent.iterdir())
    program(tmp_path / "bin", "npm", "mkdir -p node_modules/.bin; touch node_modules/.bin/cdk")
    assert cdk_program(installed).exists()


def test_an_installation_builds_below_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert build_places.build_folder() == build_places.PACKAGE.parent / "build"
    monkeypatch.setattr(build_places, "CLONE", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build_places.build_folder() == tmp_path / "muster" / muster.__version__
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert build_places.cache_folder() == tmp_path / ".cache" / "muster"
