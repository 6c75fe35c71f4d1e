"""Addresses in the AWS consoles."""

from __future__ import annotations

from muster.report.model import Links

_DOMAINS = {
    "aws": "console.aws.amazon.com",
    "aws-cn": "console.amazonaws.cn",
    "aws-us-gov": "console.amazonaws-us-gov.com",
}
# The console's own encoding of /aws/sagemaker/TrainingJobs, where SageMaker puts the logs of all jobs.
_LOG_GROUP = "$252Faws$252Fsagemaker$252FTrainingJobs"


def console_links(execution_arn: str, job_prefix: str) -> Links:
    """The consoles of the partition and region that the execution runs in; its jobs' names begin with `job_prefix`."""
    _, partition, _, region, *_ = execution_arn.split(":")
    domain = _DOMAINS.get(partition, _DOMAINS["aws"])
    base = f"https://{region}.{domain}"
    logs = f"{base}/cloudwatch/home?region={region}#logsV2:log-groups/log-group/{_LOG_GROUP}$3FlogStreamNameFilter$3D"
    jobs = f"{base}/sagemaker/home?region={region}#/jobs"
    return Links(
        execution=f"{base}/states/home?region={region}#/v2/executions/details/{execution_arn}",
        job=f"{jobs}/{{job}}",
        logs=f"{logs}{{job}}$252F",
        run_jobs=jobs,
        run_logs=f"{logs}{job_prefix}",
    )
