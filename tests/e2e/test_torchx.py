"""A run through TorchX's own commands, in its stable version. tests/release/torchx has the nightly and the options."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.deployed import Deployed
from tests.support.torchx_program import IMAGE, TorchX, torchx_server


@pytest.fixture
def torchx(stack: Deployed, tmp_path: Path) -> Iterator[TorchX]:
    with torchx_server("stable", tmp_path) as server:
        yield TorchX(server, "stable", stack)


def test_an_application_is_run_and_told_by_torchxs_own_commands(torchx: TorchX) -> None:
    command = ("utils.sh", "--image", IMAGE, "--num_replicas", "2", "--max_retries", "1")
    say = (*command, "echo", "the rank is ${replica_id}; 'quoted'")
    handle = torchx.run("--wait", *say)
    app = handle.rpartition("/")[2]
    status = torchx("status", handle)
    assert status.returncode == 0, status.stderr
    assert "SUCCEEDED" in status.stdout
    assert status.stdout.count("SUCCEEDED") == 3  # the application's and both replicas'
    described = torchx("describe", handle)
    assert (described.returncode, "'num_replicas': 2" in described.stdout) == (0, True), described.stdout
    assert app in torchx("list", "-s", "muster").stdout
    logged = torchx("log", handle)
    for rank in (0, 1):
        assert f"sh/{rank} the rank is {rank}; 'quoted'" in logged.stdout, logged.stdout + logged.stderr

    followed = torchx("log", "--tail", "--regex", "rank is [13]", f"{handle}/sh/0,1").stdout
    assert followed == "sh/1 the rank is 1; 'quoted'\n"

    missing = torchx("describe", "muster://torchx/nobody")
    assert missing.returncode != 0
    assert "Traceback" not in missing.stderr
