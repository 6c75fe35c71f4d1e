"""`muster local status` and `muster faults` reach the cloud that the shell uses, wherever the shell is."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.local.cloud_errors import OtherEndpointError
from muster.local.cloud_state import StateDirectory
from muster.local.commands.shell_cloud import shell_state
from tests.support.local_samples import STATE


def running(place: Path, port: int) -> dict[str, str]:
    """A state directory whose cloud listens on `port`; the variables of a shell that uses it."""
    place.mkdir()
    endpoint = f"https://127.0.0.1:{port}"
    StateDirectory.at(place).write(STATE.model_copy(update={"endpoint": endpoint, "port": port}))
    return {"AWS_ENDPOINT_URL": endpoint, "AWS_CA_BUNDLE": str(place / "certificates" / "ca.pem")}


def test_a_shell_that_uses_another_cloud_than_its_folder_s_is_followed(tmp_path: Path) -> None:
    running(tmp_path / "here", 1111)
    shell = running(tmp_path / "there", 2222)
    assert shell_state(shell, tmp_path / "here") == tmp_path / "there"


def test_a_shell_with_the_endpoint_alone_finds_the_cloud_of_its_folder(tmp_path: Path) -> None:
    shell = running(tmp_path / "here", 1111)
    assert shell_state({"AWS_ENDPOINT_URL": f"{shell['AWS_ENDPOINT_URL']}/"}, tmp_path / "here") == tmp_path / "here"


@pytest.mark.parametrize("variables", [{}, {"AWS_ENDPOINT_URL": "https://sagemaker.eu-west-1.amazonaws.com"}])
def test_a_shell_that_uses_no_embedded_cloud_means_the_one_of_its_folder(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    assert shell_state(variables, tmp_path) == tmp_path


def test_an_endpoint_of_which_nothing_is_known_is_not_taken_for_another_cloud(tmp_path: Path) -> None:
    running(tmp_path / "here", 1111)
    with pytest.raises(OtherEndpointError, match=r"uses https://127\.0\.0\.1:3333 .*--state"):
        shell_state(
            {"AWS_ENDPOINT_URL": "https://127.0.0.1:3333", "AWS_CA_BUNDLE": "/gone/x/ca.pem"}, tmp_path / "here"
        )
