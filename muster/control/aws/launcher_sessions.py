"""The launcher role, in whose sessions jobs are created: each session carries the tags of one run.

SageMaker gives these tags to the job's own sessions (muster.contract.run.session_tags), so the function attempt, which
launches the jobs of all runs, needs a session for each run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from botocore.exceptions import ClientError

from muster.contract.aws.failure_classes import classify_request_error
from muster.contract.layout import s3_uri
from muster.contract.run.plan import Plan
from muster.contract.run.session_tags import TAG_LINEAGE, TAG_MODEL, TAG_RUN, model_tag
from muster.control.aws.aws_errors import error_code, error_message, is_transient
from muster.control.aws.clients import Clients
from muster.control.aws.sagemaker_jobs import TrainingJobs
from muster.control.jobs import Jobs, LaunchRefusedError
from muster.control.runtime import clock

SESSION_SECONDS = 3_600  # STS: a role that is assumed by another role's session lasts at most an hour
# A session is replaced this long before its end: longer than a call of attempt lasts, with every retry.
RENEWAL = timedelta(minutes=10)
_CACHED = 32


@dataclass(frozen=True)
class _Session:
    jobs: Jobs
    ends_at: datetime


def session_tags(plan: Plan) -> dict[str, str]:
    """The tags of the run's sessions. The model of another run is readable where the plan has found it, and only then:
    a URI that the user writes gives no right."""
    tags = {TAG_LINEAGE: plan.shared_layout.run, TAG_RUN: plan.run}
    model = plan.spec.model
    if model is not None and model.run is not None and model.s3 is not None:
        own = model.s3.startswith(s3_uri(plan.place.bucket, ""))
        if own and (folder := model_tag(model.s3)) is not None:
            tags[TAG_MODEL] = folder
    return tags


class Launcher:
    """Sessions of the launcher role. A warm function keeps the session of a run until shortly before its end."""

    def __init__(self, clients: Clients, role_arn: str, job_prefix: str) -> None:
        self._clients = clients
        self._role_arn = role_arn
        self._job_prefix = job_prefix
        self._sessions: dict[str, _Session] = {}

    def jobs(self, plan: Plan) -> Jobs:
        """Training jobs as the launcher role creates them for this run.

        Raises:
            LaunchRefusedError: STS refused the session.
            ClientError: STS throttled the call, or failed.
        """
        tags = session_tags(plan)
        # One plan for each run: its tags are always the same.
        session = self._sessions.get(plan.run)
        if session is None or clock.utc_now() > session.ends_at - RENEWAL:
            session = self._open(plan.run, tags)
            if len(self._sessions) >= _CACHED:
                self._sessions.clear()
            self._sessions[plan.run] = session
        return session.jobs

    def _open(self, run: str, tags: Mapping[str, str]) -> _Session:
        try:
            answer = self._clients.sts.assume_role(
                RoleArn=self._role_arn,
                # As CloudTrail shows it. STS: 2 to 64 characters.
                RoleSessionName=f"{self._job_prefix}-{run}",
                DurationSeconds=SESSION_SECONDS,
                Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
            )
        except ClientError as error:
            if is_transient(error):
                raise
            code = error_code(error)
            reason = f"{code}: {error_message(error)} (the launcher role, in which jobs are created)"
            raise LaunchRefusedError(classify_request_error(code), reason) from error
        credentials = answer["Credentials"]
        return _Session(TrainingJobs(self._clients.sagemaker_in(credentials)), credentials["Expiration"])
