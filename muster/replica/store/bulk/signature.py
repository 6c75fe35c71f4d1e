"""Signature Version 4 in a header, for S3's requests whose body is not hashed, and for those of other services.

TLS protects the body on its way, and every block has a checksum of its own, so for S3 `UNSIGNED-PAYLOAD` is enough:
https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from urllib.parse import quote

from muster.replica.store.bulk.credentials import Credentials

_ALGORITHM = "AWS4-HMAC-SHA256"
_PAYLOAD = "UNSIGNED-PAYLOAD"


@dataclass(frozen=True)
class RequestTarget:
    """What a request is for: method, path (not quoted) and query; of another service than S3 all that is signed.

    The names of `headers` are in lower case.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    service: str = "s3"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None

    @property
    def quoted_path(self) -> str:
        """As it is sent and signed."""
        return quote(self.path, safe="/-_.~")

    @property
    def quoted_query(self) -> str:
        """As it is sent and signed."""
        return "&".join(f"{quote(name, safe='')}={quote(self.query[name], safe='')}" for name in sorted(self.query))


def signed_headers(
    target: RequestTarget, host: str, region: str, credentials: Credentials, now: datetime
) -> dict[str, str]:
    """The headers that authorize a request; Host and what the service wants signed besides. `now` is in UTC."""
    date, stamp = f"{now:%Y%m%d}", f"{now:%Y%m%dT%H%M%SZ}"
    payload = _PAYLOAD if target.body is None else hashlib.sha256(target.body).hexdigest()
    headers = {**target.headers, "host": host, "x-amz-content-sha256": payload, "x-amz-date": stamp}
    if credentials.token:
        headers["x-amz-security-token"] = credentials.token
    headers = dict(sorted(headers.items()))
    names = ";".join(headers)
    canonical = "\n".join(
        (
            target.method,
            target.quoted_path,
            target.quoted_query,
            *(f"{name}:{value}" for name, value in headers.items()),
            "",
            names,
            payload,
        )
    )
    scope = f"{date}/{region}/{target.service}/aws4_request"
    text = f"{_ALGORITHM}\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = _signing_key(credentials.secret, date, region, target.service)
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    headers["authorization"] = (
        f"{_ALGORITHM} Credential={credentials.key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return headers


@lru_cache(maxsize=4)
def _signing_key(secret: str, date: str, region: str, service: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
