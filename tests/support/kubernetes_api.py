"""Calls of the embedded API without a network: an ASGI application and its answers."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from muster.local.counted_calls import CallLog
from muster.local.service.fault_book import FaultBook
from muster.options.hyperpod.local.kubernetes.application import KubernetesApi
from muster.options.hyperpod.local.kubernetes.object_store import ObjectStore
from muster.options.hyperpod.local.kubernetes.rights import AUTHENTICATED, AccessPolicy, User

JOBS = "/apis/sagemaker.amazonaws.com/v1/namespaces/team/hyperpodpytorchjobs"
PODS = "/api/v1/namespaces/team/pods"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
_EVERYTHING = ({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},)
_VIEW = ({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]},)
_OWN = (
    *_VIEW,
    {"verbs": ["create"], "apiGroups": [""], "resources": ["serviceaccounts"]},
    {"verbs": ["create"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"]},
)
USERS = {
    "admin": User("admin", (AUTHENTICATED,), policies=(AccessPolicy(_EVERYTHING),)),
    "owner": User("owner", (AUTHENTICATED,), policies=(AccessPolicy(_OWN, ("team",)),)),
    "viewer": User("viewer", (AUTHENTICATED,), policies=(AccessPolicy(_VIEW),)),
    "developer": User("developer", (AUTHENTICATED, "developers")),
}


@dataclass(frozen=True)
class Reply:
    """Status, headers and body of an answer."""

    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def cluster_store() -> ObjectStore:
    """The objects of a new cluster with the namespace `team`."""
    store = ObjectStore()
    for name in ("default", "team"):
        store.add_namespace(name)
    return store


@dataclass
class ApiClient:
    """Who calls with the token that is their name."""

    store: ObjectStore = field(default_factory=cluster_store)
    token: str | None = "admin"
    faults: FaultBook = field(default_factory=FaultBook)

    def __post_init__(self) -> None:
        self.calls = CallLog()
        self.application = KubernetesApi("team-eks", self.store, USERS.get, self.faults, self.calls)

    def call(self, method: str, target: str, document: Any = None, **headers: str) -> Reply:
        """One call. `target` is the path with its query; headers are given with underscores."""
        path, _, query = target.partition("?")
        body = document if isinstance(document, bytes) else b"" if document is None else json.dumps(document).encode()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token is not None:
            given.setdefault("authorization", f"Bearer {self.token}")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        }
        return asyncio.run(self._run(scope, body))

    async def _run(self, scope: dict[str, Any], body: bytes) -> Reply:
        sent: list[dict[str, Any]] = []

        async def incoming() -> AsyncIterator[dict[str, Any]]:
            yield {"type": "http.request", "body": body, "more_body": False}
            await asyncio.Event().wait()  # the client stays

        messages = incoming()

        async def send(message: Any) -> None:
            sent.append(message)

        await self.application(scope, messages.__anext__, send)
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Reply(sent[0]["status"], headers, b"".join(message.get("body", b"") for message in sent[1:]))


def job(name: str = "train", **spec: Any) -> dict[str, Any]:
    """A job that the API takes."""
    template = {"spec": {"containers": [{"name": "pytorch-job-container", "image": "image:1"}]}}
    return {
        "apiVersion": "sagemaker.amazonaws.com/v1",
        "kind": "HyperPodPyTorchJob",
        "metadata": {"name": name},
        "spec": {"replicaSpecs": [{"name": "pod", "replicas": 1, "template": template}], **spec},
    }


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """A pod that the API takes."""
    containers = [{"name": "main", "image": "image:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": containers, **spec},
    }
