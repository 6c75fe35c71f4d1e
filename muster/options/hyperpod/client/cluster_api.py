"""Calls of a cluster's Kubernetes API with the caller's own credentials. Read only, apart from reviews of access."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import urllib3

from muster.options.hyperpod.contract.cluster_token import cluster_token

if TYPE_CHECKING:
    from muster.client.aws.light_session import AnySession

_TIMEOUT = urllib3.Timeout(connect=5, read=10)


class ClusterUnreachableError(ConnectionError):
    """The API does not answer from here."""


@dataclass(frozen=True)
class ClusterAnswer:
    """The status and the JSON of an answer; an empty document where it was none."""

    status: int
    body: Mapping[str, Any]

    @property
    def words(self) -> str:
        """What the API says of an error."""
        return f"{self.status} {' '.join(str(self.body.get('message', '')).split())[:300]}".strip()


class ClusterApi:
    """The API of one EKS cluster, as DescribeCluster describes it."""

    def __init__(self, session: AnySession, cluster: Mapping[str, Any]) -> None:
        try:
            self._token = cluster_token(session._session, cluster["name"])  # boto3's session and ours hold botocore's
        except RuntimeError as error:
            raise ClusterUnreachableError(error) from None
        parts = urlsplit(cluster["endpoint"])
        authority = base64.b64decode(cluster["certificateAuthority"]["data"]).decode("ascii")
        context = ssl.create_default_context(cadata=authority)
        # EKS's authorities have no key identifiers, which strict verification requires.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._pool = urllib3.HTTPSConnectionPool(
            parts.hostname or "", parts.port or 443, timeout=_TIMEOUT, ssl_context=context
        )

    def call(self, method: str, path: str, document: Mapping[str, object] | None = None) -> ClusterAnswer:
        """The answer, whatever its status is.

        Raises:
            ClusterUnreachableError: there was none.
        """
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        body = None if document is None else json.dumps(document).encode()
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            found = self._pool.urlopen(method, path, body=body, headers=headers, retries=2, redirect=False)
        except urllib3.exceptions.HTTPError as error:
            message = f"{type(error).__name__} from here"
            raise ClusterUnreachableError(message) from None
        try:
            read = json.loads(found.data)
        except ValueError:
            read = None
        return ClusterAnswer(found.status, read if isinstance(read, dict) else {})
