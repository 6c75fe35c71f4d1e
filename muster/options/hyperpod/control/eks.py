"""The part of EKS's client that Muster uses: it finds clusters, and gives pods their rights."""

from __future__ import annotations

from typing import Any, Protocol

NOT_FOUND = "ResourceNotFoundException"
IN_USE = "ResourceInUseException"


class EksClient(Protocol):
    """boto3's client of EKS."""

    def describe_cluster(self, *, name: str) -> dict[str, Any]:
        """A cluster: its endpoint, and the certificate of its authority."""

    def create_pod_identity_association(self, **request: object) -> dict[str, Any]:
        """Give the pods of a service account a role, within a session policy."""

    def list_pod_identity_associations(self, **request: str) -> dict[str, Any]:
        """The associations of a cluster, page by page."""

    def describe_pod_identity_association(self, **request: str) -> dict[str, Any]:
        """One association, with its role and policy."""

    def delete_pod_identity_association(self, **request: str) -> dict[str, Any]:
        """Take the role away."""
