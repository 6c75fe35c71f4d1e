"""A certificate authority of the service's own, and the service's certificate signed by it.

The service speaks TLS because what runs on AWS demands it: buckets that refuse plain HTTP (`aws:SecureTransport`), the
CDK bootstrap bucket among them.
"""

from __future__ import annotations

import datetime
import os
from dataclasses import dataclass
from pathlib import Path

import botocore
import trustme
from cryptography import x509

_LIFETIME = datetime.timedelta(days=365)
_RENEW_BEFORE = datetime.timedelta(days=7)
# Clients put the names of buckets and services before the host.
_IDENTITIES = (
    *("localhost", "*.localhost", "*.s3.localhost", "*.lambda-url.localhost", "*.execute-api.localhost"),
    *("127.0.0.1", "::1"),
)


@dataclass(frozen=True)
class Certificates:
    """Paths of the PEM files."""

    ca: Path
    """The certificate of our authority alone."""
    bundle: Path
    """Our authority and the public ones that botocore carries."""
    server: Path
    key: Path


def ensure_certificates(directory: Path) -> Certificates:
    """The certificates in `directory`, created if one is missing or expires within a week."""
    paths = Certificates(
        ca=directory / "ca.pem",
        bundle=directory / "bundle.pem",
        server=directory / "server.pem",
        key=directory / "server.key",
    )
    if not _usable(paths):
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _create(paths)
    return paths


def _usable(paths: Certificates) -> bool:
    if not all(path.exists() for path in (paths.ca, paths.bundle, paths.server, paths.key)):
        return False
    certificate = x509.load_pem_x509_certificate(paths.server.read_bytes())
    return certificate.not_valid_after_utc > _now() + _RENEW_BEFORE


def _create(paths: Certificates) -> None:
    # The authority's key is never written: nothing else can be signed by what clients trust.
    authority = trustme.CA(path_length=0, organization_name="Muster", organization_unit_name="Embedded cloud CA")
    server = authority.issue_cert(
        *_IDENTITIES,
        common_name="localhost",
        organization_name="Muster",
        organization_unit_name="Embedded cloud",
        not_after=_now() + _LIFETIME,
    )
    authority.cert_pem.write_to_path(paths.ca)
    public_authorities = (Path(botocore.__file__).parent / "cacert.pem").read_bytes()
    paths.bundle.write_bytes(authority.cert_pem.bytes() + b"\n" + public_authorities)
    paths.server.write_bytes(b"".join(blob.bytes() for blob in server.cert_chain_pems) + authority.cert_pem.bytes())
    descriptor = os.open(paths.key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(server.private_key_pem.bytes())


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
