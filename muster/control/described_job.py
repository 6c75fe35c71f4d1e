"""What only DescribeTrainingJob says of a job, read once its attempt has ended. No end depends on it.

Only specs that ask SageMaker for something (metrics, spot, a warm pool, rules, MLflow) cost a call for each end.
"""

from __future__ import annotations

import math

from botocore.exceptions import BotoCoreError, ClientError

from muster.contract.aws.job_status import JobStatus
from muster.contract.run.attempt import Attempt
from muster.contract.run.job_details import asks_for_details
from muster.contract.run.job_request import output_uri
from muster.control.active_run import ActiveReplica
from muster.control.jobs import Job, PlaceSilentError
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.function import logger

_ONE_TRY = TimeBudget(-math.inf)


def with_details(replica: ActiveReplica, ended: Attempt) -> Attempt:
    """`ended` with the details of its job, where the spec asks for any; without new ones where SageMaker refuses.

    Details that can still change, because a rule is being evaluated, are read again.
    """
    if ended.cluster is not None:
        return _with_artifacts(replica, ended)
    if ended.ended_at is None or not ended.was_created or not asks_for_details(replica.spec):
        return ended
    if ended.details is not None and ended.details.is_final:
        return ended
    try:
        job = replica.jobs_of(ended).find(ended.job, _ONE_TRY)
    except (ClientError, BotoCoreError, PlaceSilentError):
        logger.warning("the details of a job are missing", extra={"job": ended.job}, exc_info=True)
        return ended
    return ended if job is None else described(ended, job)


def _with_artifacts(replica: ActiveReplica, ended: Attempt) -> Attempt:
    """`ended`, an attempt on a cluster, with its artifacts, which its pods put where SageMaker would."""
    if ended.status != JobStatus.COMPLETED or ended.artifacts is not None:
        return ended
    return ended.model_copy(update={"artifacts": f"{output_uri(replica.run.plan)}/{ended.job}/output/model.tar.gz"})


def described(ended: Attempt, job: Job) -> Attempt:
    """`ended` with what its job says about its bill and its details, unless the answer lags behind its end."""
    # An event may lack the type that SageMaker chose among the preferences.
    kind = {"instance_type": job.instance_type or ended.instance_type}
    billed = {} if job.end is None else {"billable_seconds": job.billable_seconds, "details": job.details}
    return ended.model_copy(update={**kind, **billed})
