"""The custom resource with which CloudFormation lets the functions into a cluster. It always gets an answer.

CloudFormation waits for an answer: without one a stack hangs until its time is over. So a creation that fails says why,
and a deletion always succeeds: of a cluster that is gone, or does not answer, nothing that is left gives rights to
anyone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Annotated, Any, Literal

import urllib3
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from muster.contract.document import digest
from muster.contract.errors import MusterError
from muster.contract.text import shortened
from muster.contract.training.clusters import Cluster, Clusters
from muster.control.aws.clients import Clients
from muster.control.runtime.clock import TimeBudget
from muster.options.hyperpod.control.api import KubernetesApi
from muster.options.hyperpod.control.cluster_apis import ClusterApis
from muster.options.hyperpod.control.cluster_clients import ClusterClients
from muster.options.hyperpod.control.cluster_errors import ClusterGoneError
from muster.options.hyperpod.control.namespace_roles import NamespaceRoles, make_roles, remove_roles

CREATE_SECONDS, DELETE_SECONDS = 180.0, 60.0
# CloudFormation: an answer has at most 4,096 bytes.
_REASON_MAX = 1_000
_ID_LENGTH = 16
_TIMEOUT = urllib3.Timeout(connect=5, read=20)
_RETRIES = urllib3.Retry(total=4, backoff_factor=0.5, status_forcelist=(500, 502, 503, 504), allowed_methods={"PUT"})


class AccessRequest(BaseModel):
    """What CloudFormation sends."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: Annotated[Literal["Create", "Update", "Delete"], Field(alias="RequestType")]
    answer_to: Annotated[str, Field(alias="ResponseURL", pattern="^https://", max_length=8_192, repr=False)]
    stack: Annotated[str, Field(alias="StackId", min_length=1, max_length=2_048)]
    request: Annotated[str, Field(alias="RequestId", min_length=1, max_length=256)]
    resource: Annotated[str, Field(alias="LogicalResourceId", min_length=1, max_length=256)]
    physical: Annotated[str | None, Field(alias="PhysicalResourceId", max_length=1_024)] = None
    properties: Annotated[dict[str, Any], Field(alias="ResourceProperties")]


class AccessAnswer(BaseModel):
    """What CloudFormation gets. Its names are CloudFormation's."""

    Status: Literal["SUCCESS", "FAILED"]
    Reason: str
    PhysicalResourceId: str


Open = Callable[[NamespaceRoles], KubernetesApi]


def open_api(clients: Clients, roles: NamespaceRoles) -> KubernetesApi:
    """The API of the cluster that a request names."""
    cluster = Cluster(name=roles.cluster, eks_cluster=roles.eks_cluster, namespaces=tuple(roles.namespaces))
    return ClusterApis(clients.part(ClusterClients), Clusters(clusters=(cluster,))).api(cluster.name)


def answered(request: AccessRequest, opened: Open) -> AccessAnswer:
    """Do what CloudFormation asks for, in bounded time. Raises nothing that can be foreseen."""
    # Changed properties give another id, and CloudFormation then deletes what the former one stands for.
    own = f"muster-cluster-access-{digest(_known(request.properties))[:_ID_LENGTH]}"
    if request.kind == "Delete":
        physical = request.physical or own
        return AccessAnswer(Status="SUCCESS", Reason=_removed(request, opened), PhysicalResourceId=physical)
    try:
        roles = NamespaceRoles.model_validate(request.properties)
        make_roles(opened(roles), roles, TimeBudget.of(CREATE_SECONDS))
    except (MusterError, OSError, BotoCoreError, ClientError, ValidationError) as error:
        return AccessAnswer(Status="FAILED", Reason=_words(error), PhysicalResourceId=own)
    reason = f"{len(roles.roles)} roles in {', '.join(roles.namespaces)}"
    return AccessAnswer(Status="SUCCESS", Reason=shortened(reason, _REASON_MAX), PhysicalResourceId=own)


def _removed(request: AccessRequest, opened: Open) -> str:
    """What the removal left, in words."""
    try:
        roles = NamespaceRoles.model_validate(request.properties)
        left = remove_roles(opened(roles), roles, TimeBudget.of(DELETE_SECONDS))
    except ClusterGoneError as error:
        return error.reason
    except (MusterError, OSError, BotoCoreError, ClientError, ValidationError) as error:
        return f"not removed, and without effect: {_words(error)}"
    return shortened(f"not removed, and without effect: {'; '.join(left)}", _REASON_MAX) if left else "removed"


def send(request: AccessRequest, answer: AccessAnswer) -> None:
    """Give CloudFormation the answer.

    Raises:
        OSError: CloudFormation's bucket did not take it; Lambda calls the function again.
    """
    body = {
        **answer.model_dump(),
        "StackId": request.stack,
        "RequestId": request.request,
        "LogicalResourceId": request.resource,
    }
    # The address is signed for an empty type.
    headers = {"Content-Type": ""}
    pool = urllib3.PoolManager(timeout=_TIMEOUT, retries=_RETRIES, ca_certs=os.environ.get("AWS_CA_BUNDLE"))
    try:
        found = pool.request("PUT", request.answer_to, body=json.dumps(body).encode(), headers=headers)
    except urllib3.exceptions.HTTPError as error:
        # Its text has the address, which is a credential.
        message = f"CloudFormation did not take the answer: {type(error).__name__}"
        raise ConnectionError(message) from None
    if found.status >= 300:
        message = f"CloudFormation did not take the answer: {found.status}"
        raise ConnectionError(message)


def _known(properties: dict[str, Any]) -> dict[str, Any]:
    """The properties that say what is made; CloudFormation adds others."""
    return {name: properties.get(name) for name in ("Cluster", "EksCluster", "Namespaces", "Stack", "Roles")}


def _words(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return shortened(str(error), _REASON_MAX)
