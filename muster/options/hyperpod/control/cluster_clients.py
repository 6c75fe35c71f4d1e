"""With what functions call clusters: EKS, which finds them and gives pods their rights; HTTPS to their APIs; tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from muster.options.hyperpod.contract.cluster_token import cluster_token
from muster.options.hyperpod.control.cluster_https import HttpsTransport, Transport

if TYPE_CHECKING:
    from muster.control.aws.clients import Clients

NOT_FOUND = "ResourceNotFoundException"
IN_USE = "ResourceInUseException"


class EksClient(Protocol):
    """The part of boto3's client of EKS that Muster uses."""

    def describe_cluster(self, *, name: str) -> dict[str, Any]:
        """A cluster: its endpoint, and the certificate of its authority."""

    def create_pod_identity_association(self, **request: object) -> dict[str, Any]:
        """Give the pods of a service account a role, within a session policy."""

    def get_paginator(self, operation: str, /) -> Any:
        """The associations of a cluster, page by page."""

    def describe_pod_identity_association(self, **request: str) -> dict[str, Any]:
        """One association, with its role and policy."""

    def delete_pod_identity_association(self, **request: str) -> dict[str, Any]:
        """Take the role away."""


class ClusterClients:
    """Made of the clients of a function."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    @property
    def eks(self) -> EksClient:
        """EKS."""
        client: EksClient = self._clients.client("eks")
        return client

    def transport(self, endpoint: str, authority: str) -> Transport:
        """HTTPS to the Kubernetes API of a cluster; `authority` is the certificate of its own authority, as PEM."""
        return HttpsTransport(endpoint, authority)

    def token(self, eks_cluster: str) -> str:
        """A new token of this function's role for the Kubernetes API of a cluster. It is a credential."""
        return cluster_token(self._clients.session, eks_cluster)
