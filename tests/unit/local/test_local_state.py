"""The state directory, the certificates in it, and the directory that a shell means."""

import ssl
from pathlib import Path

import pytest
from cryptography import x509

from muster.local.certificate_authority import bundle_in, ensure_certificates
from muster.local.cloud_errors import NotRunningError, OtherEndpointError
from muster.local.cloud_state import StateDirectory
from muster.local.commands.shell_cloud import shell_state
from tests.support.local_samples import STATE


def test_what_is_written_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    directory = StateDirectory.at(tmp_path / "state")
    directory.prepare()
    directory.write(STATE)
    assert directory.read() == STATE
    assert directory.file.stat().st_mode & 0o777 == 0o600
    directory.file.write_text('{"endpoint": "https://127.0.0.1:1"')
    with pytest.raises(NotRunningError):
        directory.read()
    directory.clear()
    with pytest.raises(NotRunningError, match="muster local up"):
        directory.read()


def test_root_credentials_are_random_and_stay_with_the_directory(tmp_path: Path) -> None:
    one, other = StateDirectory.at(tmp_path / "one"), StateDirectory.at(tmp_path / "other")
    for directory in (one, other):
        directory.prepare()
    assert one.root_credentials() == one.root_credentials()
    assert one.root_credentials() != other.root_credentials()
    assert (one.root / "credentials.json").stat().st_mode & 0o777 == 0o600


def test_certificates_are_made_once_and_anew_when_one_is_missing(tmp_path: Path) -> None:
    made = ensure_certificates(tmp_path)
    first = made.server.read_bytes()
    assert ensure_certificates(tmp_path).server.read_bytes() == first
    made.key.unlink()
    assert ensure_certificates(tmp_path).server.read_bytes() != first
    assert made.key.stat().st_mode & 0o777 == 0o600


def test_the_authority_vouches_for_loopback_and_can_never_sign_again(tmp_path: Path) -> None:
    made = ensure_certificates(tmp_path)
    authority = x509.load_pem_x509_certificate(made.authority.read_bytes())
    server = x509.load_pem_x509_certificate(made.server.read_bytes())
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "localhost" in names.get_values_for_type(x509.DNSName)
    assert "127.0.0.1" in [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    assert not [file for file in tmp_path.iterdir() if b"PRIVATE KEY" in file.read_bytes() and file != made.key]
    assert len(ssl.create_default_context(cafile=str(bundle_in(tmp_path))).get_ca_certs()) > 100


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


def test_any_other_shell_means_the_cloud_of_its_folder(tmp_path: Path) -> None:
    here = tmp_path / "here"
    endpoint = running(here, 1111)["AWS_ENDPOINT_URL"]
    assert shell_state({"AWS_ENDPOINT_URL": f"{endpoint}/"}, here) == here
    assert shell_state({}, tmp_path) == tmp_path
    assert shell_state({"AWS_ENDPOINT_URL": "https://sagemaker.eu-west-1.amazonaws.com"}, tmp_path) == tmp_path


def test_an_endpoint_of_which_nothing_is_known_is_not_taken_for_another_cloud(tmp_path: Path) -> None:
    running(tmp_path / "here", 1111)
    with pytest.raises(OtherEndpointError, match=r"uses https://127\.0\.0\.1:3333 .*--state"):
        shell_state(
            {"AWS_ENDPOINT_URL": "https://127.0.0.1:3333", "AWS_CA_BUNDLE": "/gone/x/ca.pem"}, tmp_path / "here"
        )
