"""Clients of a cluster's API, with tokens that are made here."""

from __future__ import annotations

import base64
import datetime
import json
from dataclasses import dataclass
from typing import Any

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from kubernetes import client


@dataclass(frozen=True)
class Cluster:
    """Where the API is, and the keys of those who call it: (id, secret, token)."""

    name: str
    region: str
    endpoint: str
    ca_file: str
    namespace: str
    keys: dict[str, tuple[str, str, str | None]]

    def token(self, user: str, *, cluster: str | None = None, age: datetime.timedelta | None = None) -> str:
        """A token of a user, as `aws eks get-token` makes it; for another cluster, or an old one."""
        url = f"https://sts.{self.region}.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15"
        request = AWSRequest("GET", url, headers={"x-k8s-aws-id": cluster or self.name})
        signer = _OldSigner(Credentials(*self.keys[user]), "sts", self.region, 60)
        signer.age = age or datetime.timedelta()
        signer.add_auth(request)
        return "k8s-aws-v1." + base64.urlsafe_b64encode(str(request.url).encode()).decode().rstrip("=")

    def api(self, user: str = "root", token: str | None = None) -> client.ApiClient:
        """A client of a user, or with a token."""
        configuration = client.Configuration()
        configuration.host = self.endpoint
        configuration.ssl_ca_cert = self.ca_file
        configuration.api_key = {"authorization": f"Bearer {self.token(user) if token is None else token}"}
        return client.ApiClient(configuration)


class _OldSigner(SigV4QueryAuth):
    """Signs as if it were earlier."""

    age = datetime.timedelta()

    def add_auth(self, request: Any) -> None:
        time = datetime.datetime.now(datetime.UTC) - self.age
        request.context["timestamp"] = time.strftime("%Y%m%dT%H%M%SZ")
        self._modify_request_before_signing(request)
        canonical = self.canonical_request(request)
        signature = self.signature(self.string_to_sign(request, canonical), request)
        self._inject_signature_to_request(request, signature)


def refusal(error: client.ApiException) -> dict[str, Any]:
    """What the server has refused, as JSON."""
    document = json.loads(error.body) if error.body else {}
    return {"status": error.status, **{name: document.get(name) for name in ("kind", "reason", "message", "details")}}
