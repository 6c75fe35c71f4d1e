"""Addresses in the AWS consoles."""

from __future__ import annotations

from urllib.parse import quote

from muster.contract.aws.partitions import console_base
from muster.contract.layout import split_s3_uri
from muster.contract.names import CLUSTER_LOG_GROUPS, TRAINING_LOG_GROUP
from muster.report.page_model import Links

# The console's own encoding.
_LOG_GROUP = TRAINING_LOG_GROUP.replace("/", "$252F")


def console_links(execution_arn: str, job_prefix: str) -> Links:
    """Links into the consoles of the execution's partition and region; its jobs' names begin with `job_prefix`."""
    base, region = _base(execution_arn)
    logs = f"{base}/cloudwatch/home?region={region}#logsV2:log-groups/log-group/{_LOG_GROUP}$3FlogStreamNameFilter$3D"
    jobs = f"{base}/sagemaker/home?region={region}#/jobs"
    return Links(
        execution=f"{base}/states/home?region={region}#/v2/executions/details/{execution_arn}",
        job=f"{jobs}/{{job}}",
        logs=f"{logs}{{job}}$252F",
        run_jobs=jobs,
        run_logs=f"{logs}{job_prefix}",
    )


def with_clusters(links: Links, execution_arn: str) -> Links:
    """`links` with those to HyperPod clusters: the page that also leads to the EKS cluster, and the log groups."""
    base, region = _base(execution_arn)
    groups = f"{base}/cloudwatch/home?region={region}#logsV2:log-groups$3FlogGroupNameFilter$3D"
    clusters = {
        "cluster": f"{base}/sagemaker/home?region={region}#/cluster-management/{{cluster}}",
        # The name of a log group ends with the id of its cluster, which is not known here.
        "cluster_logs": f"{groups}{quote(CLUSTER_LOG_GROUPS, safe='').replace('%', '$25')}{{cluster}}",
    }
    return links.model_copy(update=clusters)


def object_link(execution_arn: str, uri: str) -> str:
    """The object at `uri` in the S3 console; its bucket is in the region of the execution."""
    base, region = _base(execution_arn)
    bucket, key = split_s3_uri(uri)
    return f"{base}/s3/object/{bucket}?region={region}&prefix={quote(key)}"


def _base(execution_arn: str) -> tuple[str, str]:
    _, partition, _, region, *_ = execution_arn.split(":")
    return console_base(partition, region), region
