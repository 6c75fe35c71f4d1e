"""What can go wrong on the way to a cluster, one error for each."""

from __future__ import annotations

from muster.contract.errors import MusterError


class ClusterUnknownError(MusterError):
    """The stack's settings do not have the cluster, or not any more."""

    def __init__(self, cluster: str, known: list[str]) -> None:
        has = f"the stack has {', '.join(known)}" if known else "the stack has none"
        super().__init__(
            f"The HyperPod cluster {cluster!r} is not one of this stack; {has}. Add it to hyperpod_clusters in "
            "muster.toml and deploy the stack."
        )


class ClusterGoneError(MusterError):
    """The EKS cluster does not exist any more."""

    def __init__(self, cluster: str, eks_cluster: str) -> None:
        self.reason = f"The EKS cluster {eks_cluster} of the HyperPod cluster {cluster} does not exist any more"
        super().__init__(f"{self.reason}. Remove it from hyperpod_clusters in muster.toml, or correct its eks_cluster.")


class ClusterUnavailableError(ConnectionError):
    """The cluster's API does not answer, or fails in passing: a later try may succeed."""


class ClusterUnauthorizedError(ClusterUnavailableError):
    """The cluster's API answers 401 until the last try: no access entry, or EKS cannot ask STS, which throttles it."""


class ClusterRefusedError(MusterError):
    """The cluster's API refused a request. `reason` is Kubernetes's word, such as AlreadyExists."""

    def __init__(self, cluster: str, request: str, status: int, reason: str, message: str) -> None:
        self.cluster = cluster
        self.status = status
        self.reason = reason
        self.message = message
        super().__init__(f"The cluster {cluster} refused {request}: {status} {reason}: {message}")


class ClusterNotFoundError(ClusterRefusedError):
    """404: it has no such object, or not even its kind."""


class ClusterConflictError(ClusterRefusedError):
    """409: the name is taken, or the object is not the one that was meant."""
