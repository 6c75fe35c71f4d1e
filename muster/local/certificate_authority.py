"""Certificates of the servers of the embedded cloud, each from a certificate authority of its own; serving with them.

The services speak TLS because what runs on AWS demands it: buckets that refuse plain HTTP (`aws:SecureTransport`), the
CDK bootstrap bucket among them.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import socket
from dataclasses import dataclass
from pathlib import Path

import botocore
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypercorn.config import Config

_BEFORE = datetime.timedelta(minutes=5)
_KEEP_ALIVE_SECONDS = 75.0


@dataclass(frozen=True)
class ServerCertificates:
    """Paths of the PEM files."""

    authority: Path
    server: Path
    key: Path

    @classmethod
    def at(cls, directory: Path) -> ServerCertificates:
        """Those in a directory, which need not exist yet."""
        return cls(directory / "ca.pem", directory / "server.pem", directory / "server.key")


def create_certificates(
    directory: Path, *names: str, days: int = 3_650, key_identifiers: bool = False
) -> ServerCertificates:
    """A new authority, whose key is not kept, and the certificate of a server.

    Args:
        directory: for the files; created where it is missing.
        names: host names and addresses of the server, at least one.
        days: how long both are valid.
        key_identifiers: whether they have any. Those of EKS have none: a client that checks chains strictly, as Python
            3.13 does by default, refuses them.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    paths = ServerCertificates.at(directory)
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _name("Muster embedded cloud CA")
    authority = _builder(issuer, issuer, authority_key, days)
    authority = authority.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    authority = authority.add_extension(_usage(signs_certificates=True), critical=True)
    server = _builder(_name(names[0]), issuer, server_key, days)
    server = server.add_extension(x509.SubjectAlternativeName([*map(_identity, names)]), critical=False)
    server = server.add_extension(_usage(signs_certificates=False), critical=True)
    server = server.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    if key_identifiers:
        own = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
        authority = authority.add_extension(own, critical=False)
        issuers = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)
        server = server.add_extension(issuers, critical=False)
    for path, builder in ((paths.authority, authority), (paths.server, server)):
        certificate = builder.sign(authority_key, hashes.SHA256())
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pkcs8, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    descriptor = os.open(paths.key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(server_key.private_bytes(serialization.Encoding.PEM, pkcs8, plain))
    return paths


def listening(host: str, port: int) -> socket.socket:
    """A listening socket: bound before all else, so that no other process can take the port. 0 is a free one."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.bind((host, port))
    listener.listen(512)
    return listener


def tls_config(listener: socket.socket, certificates: ServerCertificates) -> Config:
    """The configuration of a server: TLS and HTTP/1.1 on a socket that listens already."""
    config = Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.certfile = str(certificates.server)
    config.keyfile = str(certificates.key)
    config.alpn_protocols = ["http/1.1"]
    config.keep_alive_timeout = _KEEP_ALIVE_SECONDS
    return config


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _identity(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - _BEFORE).not_valid_after(now + datetime.timedelta(days))


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=True,
        key_cert_sign=signs_certificates,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


_DAYS = 365
_RENEW_BEFORE = datetime.timedelta(days=7)
# Clients put the names of buckets and services before the host.
_NAMES = (
    *("localhost", "*.localhost", "*.s3.localhost", "*.lambda-url.localhost", "*.execute-api.localhost"),
    *("127.0.0.1", "::1"),
)


def ensure_certificates(directory: Path) -> ServerCertificates:
    """The certificates of the services in `directory`, created if one is missing or expires within a week."""
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
