"""The operations of the service: validated, authorised, executed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.contract.names import TRAINING_LOG_GROUP
from muster.local.faults import QuotaError
from muster.local.ministack.host import Account, Host
from muster.local.ministack.role_sessions import RoleGrant, role_admits, role_session, session_may
from muster.local.sagemaker import documented_limits, request_validation, service_errors, state_changes
from muster.local.sagemaker.answer_pages import page, refuse_others
from muster.local.sagemaker.container_credentials import CredentialEndpoint
from muster.local.sagemaker.job_life import Lifecycle, Machine, Platform
from muster.local.sagemaker.job_storage import JobStorage
from muster.local.sagemaker.job_tree import JobTree, instance_type
from muster.local.sagemaker.log_shipping import LogSink
from muster.local.sagemaker.role_clients import PLATFORM_SESSION, RoleClients
from muster.local.sagemaker.service_errors import Caller, Operation
from muster.local.sagemaker.training_job import Change, Job

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.type_defs import (
        CreateTrainingJobRequestTypeDef,
        DescribeTrainingJobRequestTypeDef,
        ListTagsInputTypeDef,
        StopTrainingJobRequestTypeDef,
        UpdateTrainingJobRequestTypeDef,
    )

SERVICE_PRINCIPAL = "sagemaker.amazonaws.com"
_CONTAINER_SESSION = "SageMaker"
_DEFAULT_PAGE = 10  # ListTrainingJobs: MaxResults

Document = Mapping[str, object]


@dataclass(frozen=True)
class OfferedOperations:
    """Operations of SageMaker that an option emulates: its `OFFER` for the seam `local.sagemaker_operations`."""

    of: Callable[[Account, Path], Mapping[str, Operation]]
    """By their names; of an account and region, and the state directory of its embedded cloud."""


class TrainingService:
    """Training jobs of one account and region."""

    def __init__(self, host: Host, machine: Machine, further: Mapping[str, Operation]) -> None:
        """`further`: other operations of SageMaker, by their names."""
        self._host = host
        self._machine = machine
        self._jobs: dict[str, Job] = {}
        self._clients = RoleClients(host.account, machine.endpoint)
        self._credentials = CredentialEndpoint()
        self._events = state_changes.EventDispatcher(self._send, machine.faults)
        self.operations: dict[str, Operation] = {
            "CreateTrainingJob": self._create,
            "DescribeTrainingJob": self._describe,
            "StopTrainingJob": self._stop,
            "UpdateTrainingJob": self._update,
            "ListTrainingJobs": self._list,
            "ListTags": self._list_tags,
            **further,
        }

    def call(self, operation: str, request: object, caller: Caller) -> Document:
        """Execute one call.

        Raises:
            ServiceError: the caller gets this error instead of an answer.
        """
        known = self.operations.get(operation)
        if known is None:
            raise service_errors.unknown_operation(operation)
        request_validation.refuse(request_validation.violations(operation, request))
        return known(request, caller)

    # --- operations ----------------------------------------------------------------------------

    def _create(self, request: CreateTrainingJobRequestTypeDef, caller: Caller) -> Document:
        name, role = request["TrainingJobName"], request["RoleArn"]
        arn = self._arn(name)
        tags = {tag["Key"]: tag["Value"] for tag in request.get("Tags", [])}
        context = {**_tag_context(tags), **_create_context(request)}
        for resource in (arn, *self._plan_resources(request)):
            caller.authorise("sagemaker:CreateTrainingJob", resource, context)
        if tags:
            caller.authorise("sagemaker:AddTags", arn, _tag_context(tags))
        caller.authorise("iam:PassRole", role, {"iam:PassedToService": SERVICE_PRINCIPAL})
        if role.split(":")[4] != self._host.account.account_id:
            raise service_errors.foreign_role()
        request_validation.refuse(documented_limits.documented_violations(request))
        # A name can be used once. Some interfaces of AWS show ARNs in lower case: names that differ only in case are
        # refused here; AWS may accept them.
        if arn.lower() in self._jobs:
            raise service_errors.name_taken(arn)
        chained = request.get("SessionChainingConfig", {}).get("EnableSessionTagChaining", False)
        grant = RoleGrant(role, tuple(sorted(caller.session_tags.items())) if chained else ())
        if not role_admits(self._host.account, grant, SERVICE_PRINCIPAL, arn):
            raise service_errors.role_refused(role)
        if self._machine.faults.take(QuotaError, lambda fault: fnmatchcase(name, fault.job)):
            resources = request["ResourceConfig"]
            raise service_errors.quota_exceeded(instance_type(resources), resources.get("InstanceCount", 1))
        job = Job(request, arn, self._events.publish)
        job.is_warm = any(other.take_pool(request) for other in [*self._jobs.values()])
        self._jobs[arn.lower()] = job
        threading.Thread(target=self._live, args=(job, grant), name=f"job-{name}", daemon=True).start()
        return {"TrainingJobArn": arn}

    def _describe(self, request: DescribeTrainingJobRequestTypeDef, caller: Caller) -> Document:
        return self._allowed("DescribeTrainingJob", self._arn(request["TrainingJobName"]), caller).describe()

    def _stop(self, request: StopTrainingJobRequestTypeDef, caller: Caller) -> Document:
        job = self._allowed("StopTrainingJob", self._arn(request["TrainingJobName"]), caller)
        if not job.request_stop():
            message = f"The request was rejected because the training job is in status {job.status}."
            raise service_errors.invalid(message)
        return {}

    def _update(self, request: UpdateTrainingJobRequestTypeDef, caller: Caller) -> Document:
        """Of what can be updated the embedded cloud has the warm pool alone."""
        arn = self._arn(request["TrainingJobName"])
        job, resources = self._allowed("UpdateTrainingJob", arn, caller), request.get("ResourceConfig")
        if resources is None or request.keys() - {"TrainingJobName", "ResourceConfig"}:
            message = "The embedded cloud updates ResourceConfig, and nothing else, of a training job."
            raise service_errors.invalid(message)
        job.keep_pool(resources["KeepAlivePeriodInSeconds"])
        return {"TrainingJobArn": arn}

    def _list(self, request: Mapping[str, Any], caller: Caller) -> Document:
        """The jobs in the order of their creation, which is SageMaker's order unless another is asked for.

        As SageMaker documents it, a page is filled first, and then shows those of its jobs that are in the status.
        """
        caller.authorise("sagemaker:ListTrainingJobs", "*", {})
        refuse_others(request, "NameContains", "CreationTimeAfter", "SortOrder", "StatusEquals", "WarmPoolStatusEquals")
        rows = [job.summary() for job in self._jobs.values() if _selected(job, request)]
        rows = rows[::-1] if request.get("SortOrder") == "Descending" else rows
        answer = page("TrainingJobSummaries", rows, request, _DEFAULT_PAGE)
        wanted = request.get("StatusEquals")
        if wanted is not None:
            filled = answer["TrainingJobSummaries"]
            answer["TrainingJobSummaries"] = [row for row in filled if row["TrainingJobStatus"] == wanted]
        return answer

    def _list_tags(self, request: ListTagsInputTypeDef, caller: Caller) -> Document:
        tags = self._allowed("ListTags", request["ResourceArn"], caller).tags
        return {"Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}

    # --- jobs ----------------------------------------------------------------------------------

    def _arn(self, name: str) -> str:
        return self._host.account.arn("sagemaker", f"training-job/{name}")

    def _plan_resources(self, request: CreateTrainingJobRequestTypeDef) -> list[str]:
        """What else the caller must be allowed to use: the training plan of the request and its reserved capacity.

        The embedded cloud has no training plans, and takes every one of its own account and region.

        Raises:
            ServiceError: the plan is not of this account and region.
        """
        resources = request.get("ResourceConfig")
        plan = resources.get("TrainingPlanArn") if resources else None
        if plan is None:
            return []
        own = self._host.account.arn("sagemaker", "training-plan/")
        if not plan.startswith(own):
            raise service_errors.no_training_plan(plan)
        name = plan.removeprefix(own)
        return [plan, self._host.account.arn("sagemaker", f"reserved-capacity/{name}")]

    def _allowed(self, operation: str, arn: str, caller: Caller) -> Job:
        """The job with this ARN, for a caller that may make this call about it; others learn nothing of it."""
        job = self._jobs.get(arn.lower())
        tags = {} if job is None else job.tags
        caller.authorise(f"sagemaker:{operation}", arn, {f"aws:ResourceTag/{key}": tag for key, tag in tags.items()})
        if job is None:
            raise service_errors.not_found()
        return job

    def _live(self, job: Job, grant: RoleGrant) -> None:
        platform = Platform(
            machine=self._machine,
            storage=JobStorage(self._clients.of_role(grant), grant.role_arn),
            open_log=partial(self._open_log, job, grant),
            variables=partial(self._variables, job, grant),
        )
        Lifecycle(job, platform).run()

    def _variables(self, job: Job, grant: RoleGrant, tree: JobTree) -> dict[str, str]:
        make = partial(role_session, self._host.account, grant, _CONTAINER_SESSION)
        credentials = self._credentials.offer(make, tree.credentials_token)
        return {"TRAINING_JOB_ARN": job.arn, **self._machine.endpoint, **credentials}

    def _open_log(self, job: Job, grant: RoleGrant, host: str) -> LogSink:
        """A new log stream for a container; without the right to write logs a sink that drops everything."""
        account = self._host.account
        stream = f"{job.name}/{host}-{time.time_ns() // 1_000_000}"
        stream_arn = account.arn("logs", f"log-group:{TRAINING_LOG_GROUP}:log-stream:{stream}")
        credentials = role_session(account, grant, PLATFORM_SESSION)
        needed = ("logs:CreateLogStream", "logs:PutLogEvents")
        if not all(session_may(account, credentials, action, stream_arn) for action in needed):
            return lambda _events: None
        self._host.open_log_stream(TRAINING_LOG_GROUP, stream)
        return partial(self._host.put_log_events, TRAINING_LOG_GROUP, stream)

    def _send(self, change: Change) -> None:
        self._host.put_event(state_changes.SOURCE, state_changes.DETAIL_TYPE, change.detail, change.arn)

    def running(self) -> list[str]:
        """Names of the jobs that have not ended."""
        return [job.name for job in self._jobs.values() if not job.status.is_terminal]


def _selected(job: Job, request: Mapping[str, Any]) -> bool:
    return (
        request.get("NameContains", "").lower() in job.name.lower()
        and request.get("CreationTimeAfter", 0) < job.created
        and request.get("WarmPoolStatusEquals", job.pool_status) == job.pool_status
    )


def _create_context(request: CreateTrainingJobRequestTypeDef) -> dict[str, object]:
    """The condition keys of CreateTrainingJob beside those of tags (Service Authorization Reference, SageMaker)."""
    resources, network = request.get("ResourceConfig"), request.get("VpcConfig")
    known: dict[str, object] = {
        "sagemaker:InstanceTypes": [instance_type(resources)] if resources else None,
        "sagemaker:VolumeKmsKey": resources.get("VolumeKmsKeyId") if resources else None,
        "sagemaker:OutputKmsKey": request["OutputDataConfig"].get("KmsKeyId"),
        "sagemaker:VpcSubnets": network["Subnets"] if network else None,
        "sagemaker:VpcSecurityGroupIds": network["SecurityGroupIds"] if network else None,
        "sagemaker:NetworkIsolation": str(request.get("EnableNetworkIsolation", False)).lower(),
    }
    return {key: value for key, value in known.items() if value}


def _tag_context(tags: Mapping[str, str]) -> dict[str, object]:
    context: dict[str, object] = {f"aws:RequestTag/{key}": value for key, value in tags.items()}
    if tags:
        context["aws:TagKeys"] = list(tags)
    return context
