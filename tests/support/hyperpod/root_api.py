"""The API of an embedded cluster, called by the cloud's root user, and what its pods say."""

import base64
import json
from typing import Any

import urllib3
from botocore.session import get_session

from muster.local import LocalCloud
from muster.options.hyperpod.contract.cluster_token import cluster_token
from muster.options.hyperpod.contract.object_identity import API_VERSION, KIND, PLURAL
from muster.options.hyperpod.local.cluster_calls import log_group
from muster.options.hyperpod.local.cluster_settings import ClusterSettings


def token(cluster: str, region: str, key: str, secret: str) -> str:
    """A token of a key's owner, as `aws eks get-token` makes it."""
    session = get_session()
    session.set_credentials(key, secret)
    session.set_config_variable("region", region)
    return cluster_token(session, cluster)


class RootApi:
    """Jobs and pods of a namespace, over TLS."""

    def __init__(self, cloud: LocalCloud, settings: ClusterSettings) -> None:
        eks_cluster, namespace = settings.eks_cluster, settings.namespace
        self._cluster, self._logs = settings.name, cloud.client("logs")
        cluster = cloud.client("eks").describe_cluster(name=eks_cluster)["cluster"]
        authority = base64.b64decode(cluster["certificateAuthority"]["data"]).decode()
        self._endpoint = cluster["endpoint"]
        self._token = token(eks_cluster, cloud.state.region, cloud.state.access_key_id, cloud.state.secret_access_key)
        self._pool = urllib3.PoolManager(ca_cert_data=authority)
        self.core = f"/api/v1/namespaces/{namespace}"
        self.jobs = f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}"

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and document of an answer."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body)
        found = self._pool.request(method, self._endpoint + path, body=content, headers=headers, retries=False)
        return found.status, json.loads(found.data)

    def create_job(self, name: str, command: list[str], **spec: Any) -> None:
        """A job of one pod that runs `command`."""
        container = {"name": "c", "image": "muster-local/python", "command": command}
        container["env"] = [{"name": "NNODES", "value": "1"}]  # type: ignore[assignment]  # a document
        template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 5, **spec}}
        document = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name},
            "spec": {
                "nprocPerNode": "1",
                "replicaSpecs": [{"name": "pod", "replicas": 1, "template": template}],
                "runPolicy": {"ttlSecondsAfterFinished": 3600, "cleanPodPolicy": "None"},
            },
        }
        assert self.ask("POST", self.jobs, document)[0] == 201

    def delete_job(self, name: str) -> None:
        """Delete a job, as its owner does."""
        self.ask("DELETE", f"{self.jobs}/{name}")

    def log(self) -> str:
        """What all pods of the cluster have said so far, in CloudWatch Logs."""
        try:
            found = self._logs.filter_log_events(logGroupName=log_group(self._cluster))
        except self._logs.exceptions.ResourceNotFoundException:
            return ""
        return "\n".join(event["message"] for event in found["events"])
