"""What SageMaker says of HyperPod clusters. Their Kubernetes API is never called from here."""

from __future__ import annotations

from botocore.exceptions import ClientError as AwsError

from muster.client.aws.connection import Connection
from muster.client.aws.error_translation import error_code, translated
from muster.contract.hyperpod.pod_log_lines import LOG_GROUPS


class HyperPodClusters:
    """The clusters of the account, each asked for once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._log_groups: dict[str, str | None] = {}

    def log_group(self, cluster: str) -> str | None:
        """The log group of the cluster of this name; None where there is no such cluster."""
        if cluster not in self._log_groups:
            self._log_groups[cluster] = self._find(cluster)
        return self._log_groups[cluster]

    def _find(self, cluster: str) -> str | None:
        with translated():
            try:
                found = self._connection.sagemaker.describe_cluster(ClusterName=cluster)
            except AwsError as error:
                if error_code(error) not in {"ResourceNotFound", "ValidationException"}:
                    raise
                return None
        # arn:aws:sagemaker:REGION:ACCOUNT:cluster/ID, with an id that is not the name.
        return f"{LOG_GROUPS}{cluster}/{found['ClusterArn'].rpartition('/')[2]}"
