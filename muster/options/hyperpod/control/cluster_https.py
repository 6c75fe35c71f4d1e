"""HTTPS to the API of one cluster, whose certificate is checked against the cluster's own authority."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

import urllib3

from muster.control.aws.clients import CONNECT_SECONDS, READ_SECONDS
from muster.control.runtime.parallel import PARALLEL

BODY_BYTES_MAX = 32 * 1024 * 1024
"""Of an answer. A job has tens of kilobytes, and a page of a list at most 100 of them."""
_TIMEOUT = urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS)


class HttpAnswer(NamedTuple):
    """An answer of the API."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """Sends one request."""

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
        """The answer, whatever its status is.

        Raises:
            OSError: there was none. The request may have been carried out.
        """


class HttpsTransport:
    """A pool of connections to an endpoint. Redirects are not followed: the request carries a token."""

    def __init__(self, endpoint: str, authority: str) -> None:
        """`authority`: the certificate of the cluster's own authority, as PEM."""
        parts = urlsplit(endpoint)
        context = ssl.create_default_context(cadata=authority)
        # EKS's authorities have no key identifiers, which strict verification (the default since Python 3.13) requires.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._pool = urllib3.HTTPSConnectionPool(
            parts.hostname or "", parts.port or 443, maxsize=PARALLEL, timeout=_TIMEOUT, ssl_context=context
        )

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
        """The answer, whatever its status is.

        Raises:
            ConnectionError: there was none, or it was too large. The request may have been carried out.
        """
        try:
            response = self._pool.urlopen(
                method, path, body=body, headers=dict(headers), retries=False, redirect=False, preload_content=False
            )
            read = response.read(BODY_BYTES_MAX + 1)
            # A connection with unread bytes cannot be used again.
            if len(read) > BODY_BYTES_MAX:
                response.close()
            response.release_conn()
        except urllib3.exceptions.HTTPError as error:
            # The text of urllib3's errors names host and path, and no header.
            message = f"{type(error).__name__}: {error}"
            raise ConnectionError(message) from None
        if len(read) > BODY_BYTES_MAX:
            message = f"the answer has more than {BODY_BYTES_MAX:,} bytes"
            raise ConnectionError(message)
        return HttpAnswer(response.status, {name.lower(): value for name, value in response.headers.items()}, read)
