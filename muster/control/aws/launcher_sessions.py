"""The launcher role, in whose sessions jobs are created: each session carries the tags of one run.

SageMaker gives these tags to the job's own sessions (muster.contract.run.session_tags), so the function attempt, which
launches the jobs of all runs, needs a session for each run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import ClientError

from muster.contract.aws.failure_classes import classify_request_error
from muster.contract.layout import s3_uri
from muster.contract.run.plan import Plan
from muster.contract.run.session_tags import TAG_LINEAGE, TAG_MODEL, TAG_RUN, model_tag
from muster.control.aws.aws_errors import error_code, error_message, is_denied, is_transient
from muster.control.aws.sagemaker_jobs import TrainingJobs
from muster.control.jobs import Jobs, LaunchRefusedError
from muster.control.runtime import clock

if TYPE_CHECKING:
    from mypy_boto3_sagemaker import SageMakerClient
    from mypy_boto3_sts import STSClient
    from mypy_boto3_sts.type_defs import CredentialsTypeDef

SESSION_SECONDS = 3_600  # STS: a role that is assumed by another role's session lasts at most an hour
# A session is replaced this long before its end: longer than a call of attempt lasts, with every retry.
RENEWAL = timedelta(minutes=10)
_CACHED = 32


NO_RUN = "-"
"""In the tags of sessions that belong to no run: no run has such a name."""


class SessionClients(Protocol):
    """What opens sessions, and calls SageMaker in them."""

    @property
    def sts(self) -> STSClient:
        """STS, at home."""

    def sagemaker_in(self, credentials: CredentialsTypeDef) -> SageMakerClient:
        """SageMaker in a session."""


@dataclass(frozen=True)
class Session:
    """A session of the role."""

    sagemaker: SageMakerClient
    credentials: CredentialsTypeDef
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

    def __init__(self, clients: SessionClients, role_arn: str, job_prefix: str, external_id: str | None = None) -> None:
        """`external_id`: what the role of another place asks for."""
        self._clients = clients
        self._role_arn = role_arn
        self._job_prefix = job_prefix
        self._external: dict[str, Any] = {} if external_id is None else {"ExternalId": external_id}
        self._sessions: dict[str, Session] = {}

    def jobs(self, plan: Plan) -> Jobs:
        """Training jobs as the launcher role creates them for this run.

        Raises:
            LaunchRefusedError: STS refused the session.
            ClientError: STS throttled the call, or failed.
        """
        return TrainingJobs(self.session_of(plan).sagemaker)

    def session_of(self, plan: Plan) -> Session:
        """The session in which jobs of a run are created. Errors as for `jobs`."""
        # One plan for each run: its tags are always the same.
        return self._session(plan.run, session_tags(plan))

    def session_of_no_run(self, *, tagged: bool) -> Session:
        """A session for what needs no run; `tagged`, where the role asks for tags, with those that no run has.

        Raises:
            ClientError: STS refused the session, throttled the call, or failed.
        """
        try:
            return self._session(NO_RUN, {TAG_LINEAGE: NO_RUN, TAG_RUN: NO_RUN} if tagged else {})
        except LaunchRefusedError as error:
            raise error.__cause__ or error from None

    def _session(self, run: str, tags: Mapping[str, str]) -> Session:
        session = self._sessions.get(run)
        if session is None or clock.utc_now() > session.ends_at - RENEWAL:
            session = self._open(run, tags)
            if len(self._sessions) >= _CACHED:
                self._sessions.clear()
            self._sessions[run] = session
        return session

    def _open(self, run: str, tags: Mapping[str, str]) -> Session:
        asked: dict[str, Any] = {**self._external}
        if tags:
            asked["Tags"] = [{"Key": key, "Value": value} for key, value in tags.items()]
        try:
            answer = self._clients.sts.assume_role(
                RoleArn=self._role_arn,
                # As CloudTrail shows it. STS: 2 to 64 characters.
                RoleSessionName=f"{self._job_prefix}-{run}",
                DurationSeconds=SESSION_SECONDS,
                **asked,
            )
        except ClientError as error:
            if is_transient(error):
                raise
            code = error_code(error)
            reason = f"{code}: {error_message(error)} (the launcher role, in which jobs are created)"
            raise LaunchRefusedError(classify_request_error(code), reason, denied=is_denied(error)) from error
        credentials = answer["Credentials"]
        return Session(self._clients.sagemaker_in(credentials), credentials, credentials["Expiration"])
