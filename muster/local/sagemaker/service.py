"""The operations of the service: validated, authorised, carried out."""

from __future__ import annotations

import base64
import binascii
import json
import threading
import time
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from muster.contract.names import TRAINING_LOG_GROUP
from muster.local.faults import FaultBook, QuotaError
from muster.local.ministack import Host, role_admits, role_session, session_may
from muster.local.processes import ProcessPool
from muster.local.sagemaker import errors, events, limits, validation
from muster.local.sagemaker.clients import PLATFORM_SESSION, RoleClients
from muster.local.sagemaker.job import Change, Job
from muster.local.sagemaker.lifecycle import Lifecycle, Platform
from muster.local.sagemaker.logs import LogSink
from muster.local.sagemaker.storage import JobStorage
from muster.local.sagemaker.tree import instance_type
from muster.local.settings import Settings

SERVICE_PRINCIPAL = "sagemaker.amazonaws.com"
_CONTAINER_SESSION = "SageMaker"
_DEFAULT_PAGE = 10  # ListTrainingJobs: MaxResults
_MAX_TAGS = 50  # quota: tags per resource

Document = Mapping[str, Any]
Authorise = Callable[[str, str, Mapping[str, Any]], None]
"""Checks (action, resource ARN, condition keys) for the caller; raises ServiceError when it may not."""


class TrainingService:
    """Training jobs of one account and region."""

    def __init__(
        self,
        *,
        settings: Settings,
        host: Host,
        processes: ProcessPool,
        faults: FaultBook,
        place: Path,
        endpoint: Mapping[str, str],
    ) -> None:
        """`place` holds the jobs' trees, `endpoint` the variables that lead to this service."""
        self._settings = settings
        self._host = host
        self._processes = processes
        self._faults = faults
        self._place = place
        self._endpoint = endpoint
        self._jobs: dict[str, Job] = {}
        self._clients = RoleClients(host.scope, endpoint)
        self._events = events.EventDispatcher(self._send, faults)
        self.operations: dict[str, Callable[[Document, Authorise], Document]] = {
            "CreateTrainingJob": self._create,
            "DescribeTrainingJob": self._describe,
            "StopTrainingJob": self._stop,
            "ListTrainingJobs": self._list,
            "AddTags": self._add_tags,
            "ListTags": self._list_tags,
        }

    def call(self, operation: str, request: Any, authorise: Authorise) -> Document:
        """Carry out one call.

        Raises:
            ServiceError: what the caller gets instead of an answer.
        """
        known = self.operations.get(operation)
        if known is None:
            raise errors.unknown_operation(operation)
        validation.refuse(validation.violations(operation, request))
        return known(request, authorise)

    # --- operations ----------------------------------------------------------------------------

    def _create(self, request: Document, authorise: Authorise) -> Document:
        name, role = request["TrainingJobName"], request["RoleArn"]
        arn = self._arn(name)
        tags = {tag["Key"]: tag["Value"] for tag in request.get("Tags", [])}
        context = _tag_context(tags)
        if "ResourceConfig" in request:
            context["sagemaker:InstanceTypes"] = [instance_type(request["ResourceConfig"])]
        authorise("sagemaker:CreateTrainingJob", arn, context)
        if tags:
            authorise("sagemaker:AddTags", arn, _tag_context(tags))
        authorise("iam:PassRole", role, {"iam:PassedToService": SERVICE_PRINCIPAL})
        validation.refuse(limits.documented_violations(request))
        # Names are unique for ever. Some of AWS's interfaces show ARNs in lower case: names that differ
        # in case only are refused here, where AWS may or may not.
        if arn.lower() in self._jobs:
            raise errors.name_taken(arn)
        if not role_admits(self._host.scope, role, SERVICE_PRINCIPAL, arn):
            raise errors.role_refused(role)
        if self._faults.take(QuotaError, lambda fault: fnmatchcase(name, fault.job)):
            resources = request["ResourceConfig"]
            raise errors.quota_exceeded(instance_type(resources), resources.get("InstanceCount", 1))
        job = Job(request, arn, self._events.publish)
        self._jobs[arn.lower()] = job
        threading.Thread(target=self._live, args=(job,), name=f"job-{name}", daemon=True).start()
        return {"TrainingJobArn": arn}

    def _describe(self, request: Document, authorise: Authorise) -> Document:
        arn = self._arn(request["TrainingJobName"])
        authorise("sagemaker:DescribeTrainingJob", arn, self._resource_context(arn))
        return self._job(arn).describe()

    def _stop(self, request: Document, authorise: Authorise) -> Document:
        arn = self._arn(request["TrainingJobName"])
        authorise("sagemaker:StopTrainingJob", arn, self._resource_context(arn))
        job = self._job(arn)
        if not job.request_stop():
            message = f"The request was rejected because the training job is in status {job.status}."
            raise errors.invalid(message)
        return {}

    def _list(self, request: Document, authorise: Authorise) -> Document:
        authorise("sagemaker:ListTrainingJobs", "*", {})
        if request.get("WarmPoolStatusEquals") or request.get("TrainingPlanArnEquals"):
            return {"TrainingJobSummaries": []}
        rows = [job for job in self._jobs.values() if _selected(job, request)]
        key: Callable[[Job], Any] = {
            "Name": lambda job: job.name,
            "Status": lambda job: (job.status, job.created),
            "CreationTime": lambda job: job.created,
        }[request.get("SortBy", "CreationTime")]
        rows.sort(key=key, reverse=request.get("SortOrder", "Descending") == "Descending")
        start = _position(request.get("NextToken"))
        end = start + request.get("MaxResults", _DEFAULT_PAGE)
        answer: dict[str, Any] = {"TrainingJobSummaries": [job.summary() for job in rows[start:end]]}
        if end < len(rows):
            answer["NextToken"] = base64.b64encode(json.dumps({"position": end}).encode()).decode()
        return answer

    def _add_tags(self, request: Document, authorise: Authorise) -> Document:
        arn = request["ResourceArn"]
        added = {tag["Key"]: tag["Value"] for tag in request["Tags"]}
        authorise("sagemaker:AddTags", arn, {**_tag_context(added), **self._resource_context(arn)})
        validation.refuse(limits.tag_violations(request["Tags"]))
        job = self._job(arn)
        merged = {**job.tags, **added}
        if len(merged) > _MAX_TAGS:
            message = f"A resource has at most {_MAX_TAGS} tags; this one would have {len(merged)}."
            raise errors.invalid(message)
        job.tags = merged
        return {"Tags": _tag_list(merged)}

    def _list_tags(self, request: Document, authorise: Authorise) -> Document:
        arn = request["ResourceArn"]
        authorise("sagemaker:ListTags", arn, self._resource_context(arn))
        return {"Tags": _tag_list(self._job(arn).tags)}

    # --- jobs ----------------------------------------------------------------------------------

    def _arn(self, name: str) -> str:
        scope = self._host.scope
        return f"arn:aws:sagemaker:{scope.region}:{scope.account_id}:training-job/{name}"

    def _job(self, arn: str) -> Job:
        job = self._jobs.get(arn.lower())
        if job is None:
            raise errors.not_found()
        return job

    def _resource_context(self, arn: str) -> dict[str, Any]:
        job = self._jobs.get(arn.lower())
        return {f"aws:ResourceTag/{key}": value for key, value in job.tags.items()} if job else {}

    def _live(self, job: Job) -> None:
        role = job.request["RoleArn"]
        platform = Platform(
            settings=self._settings,
            faults=self._faults,
            processes=self._processes,
            place=self._place / job.name,
            storage=JobStorage(self._clients.of_role(role), role),
            open_log=partial(self._open_log, job),
            variables=partial(self._variables, job),
        )
        Lifecycle(job, platform).run()

    def _variables(self, job: Job) -> dict[str, str]:
        credentials = role_session(self._host.scope, job.request["RoleArn"], _CONTAINER_SESSION)
        return {"TRAINING_JOB_ARN": job.arn, **self._endpoint, **credentials.variables()}

    def _open_log(self, job: Job) -> LogSink:
        """A new log stream for a process; a sink that drops everything when the role may not write logs."""
        scope = self._host.scope
        stream = f"{job.name}/algo-1-{time.time_ns() // 1_000_000}"
        group_arn = f"arn:aws:logs:{scope.region}:{scope.account_id}:log-group:{TRAINING_LOG_GROUP}"
        credentials = role_session(scope, job.request["RoleArn"], PLATFORM_SESSION)
        needed = ("logs:CreateLogStream", "logs:PutLogEvents")
        if not all(session_may(scope, credentials, action, f"{group_arn}:log-stream:{stream}") for action in needed):
            return lambda _events: None
        self._host.open_log_stream(TRAINING_LOG_GROUP, stream)
        return partial(self._host.put_log_events, TRAINING_LOG_GROUP, stream)

    def _send(self, change: Change) -> None:
        self._host.put_event(events.SOURCE, events.DETAIL_TYPE, change.detail, change.arn)

    def running(self) -> list[str]:
        """Names of the jobs that have not ended."""
        return [job.name for job in self._jobs.values() if not job.status.is_terminal]


def _selected(job: Job, request: Document) -> bool:
    after, before = request.get("CreationTimeAfter"), request.get("CreationTimeBefore")
    modified_after, modified_before = request.get("LastModifiedTimeAfter"), request.get("LastModifiedTimeBefore")
    return (
        (after is None or job.created > after)
        and (before is None or job.created < before)
        and (modified_after is None or job.modified > modified_after)
        and (modified_before is None or job.modified < modified_before)
        and request.get("NameContains", "").lower() in job.name.lower()
        and request.get("StatusEquals", job.status) == job.status
    )


def _position(token: str | None) -> int:
    if token is None:
        return 0
    try:
        return int(json.loads(base64.b64decode(token, validate=True))["position"])
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        message = "The token is not one that ListTrainingJobs gave."
        raise errors.invalid(message) from error


def _tag_context(tags: Mapping[str, str]) -> dict[str, Any]:
    context: dict[str, Any] = {f"aws:RequestTag/{key}": value for key, value in tags.items()}
    if tags:
        context["aws:TagKeys"] = list(tags)
    return context


def _tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
