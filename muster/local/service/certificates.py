"""The service's certificate, and what its clients trust.

The service speaks TLS because what runs on AWS demands it: buckets that refuse plain HTTP (`aws:SecureTransport`), the
CDK bootstrap bucket among them.
"""

from __future__ import annotations

import datetime
from pathlib import Path

import botocore
from cryptography import x509

from muster.local.certificate_authority import ServerCertificates, create_certificates

_DAYS = 365
_RENEW_BEFORE = datetime.timedelta(days=7)
# Clients put the names of buckets and services before the host.
_NAMES = (
    *("localhost", "*.localhost", "*.s3.localhost", "*.lambda-url.localhost", "*.execute-api.localhost"),
    *("127.0.0.1", "::1"),
)


def ensure_certificates(directory: Path) -> ServerCertificates:
    """The certificates in `directory`, created if one is missing or expires within a week."""
    paths, bundle = ServerCertificates.at(directory), bundle_in(directory)
    if all(path.exists() for path in (paths.authority, paths.server, paths.key, bundle)):
        certificate = x509.load_pem_x509_certificate(paths.server.read_bytes())
        if certificate.not_valid_after_utc > datetime.datetime.now(datetime.UTC) + _RENEW_BEFORE:
            return paths
    create_certificates(directory, *_NAMES, days=_DAYS, key_identifiers=True)
    public_authorities = (Path(botocore.__file__).parent / "cacert.pem").read_bytes()
    bundle.write_bytes(paths.authority.read_bytes() + b"\n" + public_authorities)
    return paths


def bundle_in(directory: Path) -> Path:
    """The file with our authority and the public ones that botocore carries."""
    return directory / "bundle.pem"
