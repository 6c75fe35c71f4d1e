"""A certificate authority of our own, and the service's certificate signed by it.

The service speaks TLS because what runs on AWS demands it: buckets that refuse plain http
(`aws:SecureTransport`), the CDK bootstrap bucket among them.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

import botocore
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = datetime.timedelta(days=365)
_RENEW_BEFORE = datetime.timedelta(days=7)
# Bucket and service names that clients put before the host.
_HOST_NAMES = ("localhost", "*.localhost", "*.s3.localhost", "*.lambda-url.localhost", "*.execute-api.localhost")
_ADDRESSES = ("127.0.0.1", "::1")


@dataclass(frozen=True)
class Certificates:
    """Paths of the PEM files."""

    ca: Path
    """Our authority's certificate alone."""
    bundle: Path
    """Our authority and the public ones that botocore carries."""
    server: Path
    key: Path


def ensure_certificates(directory: Path) -> Certificates:
    """The certificates in `directory`, made anew when missing or about to expire."""
    paths = Certificates(
        ca=directory / "ca.pem",
        bundle=directory / "bundle.pem",
        server=directory / "server.pem",
        key=directory / "server.key",
    )
    if not _usable(paths):
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make(paths)
    return paths


def _usable(paths: Certificates) -> bool:
    if not all(path.exists() for path in (paths.ca, paths.bundle, paths.server, paths.key)):
        return False
    certificate = x509.load_pem_x509_certificate(paths.server.read_bytes())
    return certificate.not_valid_after_utc > _now() + _RENEW_BEFORE


def _make(paths: Certificates) -> None:
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Muster embedded cloud CA")])
    authority = (
        _builder(authority_name, authority_name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    server_key = ec.generate_private_key(ec.SECP256R1())
    server_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in _HOST_NAMES]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in _ADDRESSES]
    server = (
        _builder(server_name, authority_name, server_key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    # The authority's key is thrown away: nothing else can ever be signed by what clients were told to trust.
    authority_pem = authority.public_bytes(serialization.Encoding.PEM)
    public_authorities = (Path(botocore.__file__).parent / "cacert.pem").read_bytes()
    paths.ca.write_bytes(authority_pem)
    paths.bundle.write_bytes(authority_pem + b"\n" + public_authorities)
    paths.server.write_bytes(server.public_bytes(serialization.Encoding.PEM) + authority_pem)
    descriptor = os.open(paths.key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(
            server_key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = _now()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # A clock that is set back a little must not make a fresh certificate invalid.
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + _LIFETIME)
    )


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
