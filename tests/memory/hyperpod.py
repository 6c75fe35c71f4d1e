"""HyperPod clusters as SageMaker describes them."""

from typing import Any

from tests.memory.calls import Operation, Parameters, refuse


class HyperPodClusters:
    """The clusters of the account: name and id, which is the end of the ARN."""

    def __init__(self, account: str, region: str) -> None:
        self._head = f"arn:aws:sagemaker:{region}:{account}:cluster/"
        self.ids: dict[str, str] = {}
        self.operations = {"DescribeCluster": Operation(self._describe, {"ClusterName"})}

    def _describe(self, request: Parameters) -> dict[str, Any]:
        name = request["ClusterName"]
        if name not in self.ids:
            refuse("ResourceNotFound", f"Cluster with name {name} not found")
        arn = f"{self._head}{self.ids[name]}"
        return {"ClusterArn": arn, "ClusterName": name, "ClusterStatus": "InService", "InstanceGroups": []}
