"""The certificates of an embedded cluster are as those of EKS, and those of the service as strict clients want them."""

import ssl
from pathlib import Path

from muster.local.certificate_authority import ServerCertificates, create_certificates, ensure_certificates


def chain_is_taken(paths: ServerCertificates, *, strict: bool, name: str = "127.0.0.1") -> bool:
    """Whether a client that trusts the authority shakes hands with the server."""
    trusting = ssl.create_default_context(cafile=str(paths.authority))
    flags = trusting.verify_flags & ~ssl.VERIFY_X509_STRICT
    trusting.verify_flags = flags | ssl.VERIFY_X509_STRICT if strict else flags
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(paths.server, paths.key)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server, server_hostname=name)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return True


def test_only_a_client_that_is_not_strict_takes_a_chain_without_key_identifiers(tmp_path: Path) -> None:
    paths = create_certificates(tmp_path / "cluster", "127.0.0.1")
    assert chain_is_taken(paths, strict=False)
    assert not chain_is_taken(paths, strict=True)
    assert paths.key.stat().st_mode & 0o777 == 0o600
    assert chain_is_taken(create_certificates(tmp_path / "service", "127.0.0.1", key_identifiers=True), strict=True)


def test_the_service_is_trusted_by_name_and_address(tmp_path: Path) -> None:
    paths = ensure_certificates(tmp_path)
    for name in ("localhost", "bucket.s3.localhost", "127.0.0.1"):
        assert chain_is_taken(paths, strict=True, name=name)
