"""The jobs of replicas in one namespace of a cluster: create, look, list, stop. Every call is idempotent."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from muster.contract.aws.failure_classes import FailureClass, classify_cluster_refusal
from muster.contract.aws.job_status import JobStatus
from muster.contract.names import JobName
from muster.contract.run.job_details import JobDetails
from muster.contract.run.notices import EndNotice
from muster.contract.run.orphans import ActiveJob
from muster.contract.text import shortened
from muster.control.jobs import Creation, Job, LaunchRefusedError
from muster.control.runtime import clock
from muster.control.runtime.clock import TimeBudget
from muster.options.hyperpod.contract.job_document import TYPE_LABEL, ClusterJobError, cluster_job
from muster.options.hyperpod.contract.job_state import CLUSTER_GONE, DELETED, PENDING, JobState, all_run, job_state
from muster.options.hyperpod.contract.object_identity import (
    GROUP,
    LABEL_RUN,
    LABEL_STACK,
    PLURAL,
    VERSION,
    job_labels,
    tags_of,
)
from muster.options.hyperpod.control.api import Json, KubernetesApi
from muster.options.hyperpod.control.cluster_apis import ClusterApis
from muster.options.hyperpod.control.cluster_errors import (
    ClusterConflictError,
    ClusterGoneError,
    ClusterNotFoundError,
    ClusterRefusedError,
    ClusterUnknownError,
)
from muster.options.hyperpod.control.job_on_cluster import JobOnCluster, note_look

if TYPE_CHECKING:
    from muster.contract.run.plan import Plan
    from muster.control.documents import Change, Updated

_IMPATIENT = TimeBudget(-math.inf)
_REASON_MAX = 1_024
_STOP_TRIES = 4
_TAGS_KEPT = 10_000
# How the API server repeats a value that it refuses: env[3].value: Invalid value: "…": must be a string.
_REFUSED_VALUE = re.compile(
    r"(?P<kind>Invalid value|Unsupported value|Duplicate value|Too long): (\"(\\.|[^\"\\])*\"|\{.*\}|\[.*\]|\S+)",
    re.DOTALL,
)
_WAS_DELETED = "The job was deleted from its cluster"
# Beside these, what the environment holds is the user's.
_OWN_NAMES = ("MUSTER_", "AWS_REGION", "AWS_DEFAULT_REGION", "NNODES")
_PRIVATE_MIN = 4  # characters: a shorter value of the environment, such as a number, says nothing


class ClusterJobs:
    """The jobs in one namespace of a cluster (`muster.control.jobs.Jobs`)."""

    noun = "job"

    def __init__(self, apis: ClusterApis, cluster: str, namespace: str) -> None:
        self._apis = apis
        self.cluster = cluster
        self.namespace = namespace
        self._path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}"
        self._tags: dict[str, dict[str, str]] = {}
        """Of jobs that were read just now: their labels come with them."""
        self.patience = _IMPATIENT
        """How long a call is tried again, except `create`: the workflow waits for that at a lower cost."""

    @property
    def place(self) -> str:
        """Where they are, for messages."""
        return f"namespace {self.namespace} of the cluster {self.cluster}"

    def request(self, plan: Plan, rank: int, attempt: int, shortages: int) -> dict[str, JsonValue]:
        """The document of an attempt's job.

        Raises:
            LaunchRefusedError: the schema of such a job refuses it.
        """
        try:
            return cluster_job(plan, rank, attempt, shortages)
        except ClusterJobError as error:
            raise LaunchRefusedError(FailureClass.INVALID_REQUEST, str(error)[:_REASON_MAX]) from None

    def create(self, request: dict[str, JsonValue]) -> Creation:
        """Create the job of a document. Not new where one of its name exists already (Muster's or not).

        Raises:
            LaunchRefusedError: the last answer was a refusal. An earlier answer may have been lost, so only `find`
                shows whether the job exists.
            ClusterUnavailableError: the API did not answer, or failed in passing.
        """
        try:
            created = self._api().create(self._path, request, _IMPATIENT, fieldValidation="Strict")
        except ClusterConflictError:
            return Creation(is_new=False)
        except ClusterRefusedError as refused:
            # Also where a reason enters the record: but half of a value that is cut off here would not be known there.
            words = _without_private_values(refused.message, request)
            what = f"{refused.status} {refused.reason}".strip()
            reason = shortened(f"{what}: {words} ({self.place})", _REASON_MAX)
            raise LaunchRefusedError(classify_cluster_refusal(refused.status, refused.message), reason) from None
        except (ClusterGoneError, ClusterUnknownError) as gone:
            raise LaunchRefusedError(FailureClass.INVALID_REQUEST, str(gone)) from None
        return Creation(is_new=True, job=self._job(created, job_state(created)))

    def find(self, name: str, patience: TimeBudget | None = None) -> Job | None:
        """The job of that name, or None. `patience` replaces that of all calls. Why it has failed is not looked for."""
        document = self._document(name, self.patience if patience is None else patience)
        return None if document is None else self._job(document, job_state(document))

    def explained(self, job: Job, notice: EndNotice | None = None) -> Job:
        """`job` with the reason of its failure, or of its wait, from its pods and its end notice, if they can be read.

        An image that cannot be pulled shows in pods that wait, and not any more when the operator has given them up.
        """
        is_waiting = job.secondary == PENDING and job.end is None
        if job.is_gone or not (is_waiting or job.status == JobStatus.FAILED):
            return job
        document = self._document(job.name, self.patience)
        if document is None:
            return job
        return self._job(document, job_state(document, self._pods(job.name), notice))

    def note(self, update: Callable[[Change], Updated], job: Job | None) -> None:
        """Write what a look has found into a replica's record with `update`."""
        note_look(update, job)

    def is_running(self, job: Job) -> bool:
        """Whether all pods of the job run; not where they cannot be read."""
        return all_run(self._pods(job.name), job.details.instances)

    def vanished(self, name: str) -> Job | None:
        """What it means that a job is not there any more whose attempt was seen to have one: it was deleted."""
        try:
            self._api().get(self._path, self.patience, limit="1")
        except ClusterGoneError as gone:
            status, secondary, reason = JobStatus.FAILED, CLUSTER_GONE, gone.reason
        except ClusterNotFoundError:
            # The operator was removed, and with their kind all jobs.
            status, secondary, reason = JobStatus.STOPPED, DELETED, f"{_WAS_DELETED}, with all jobs of its kind"
        else:
            status, secondary, reason = JobStatus.STOPPED, DELETED, _WAS_DELETED
        job = self._job({"metadata": {"name": name}}, JobState(status, secondary, reason=reason))
        return replace(job, tags=None, is_gone=True)

    def tags(self, arn: str) -> Mapping[str, str]:
        """The tags that a training job with the same labels and annotations would have."""
        found = self._tags.pop(arn, None)
        if found is not None:
            return found
        document = self._document(arn.rpartition("/")[2], self.patience)
        return {} if document is None else tags_of(document["metadata"])

    def stop(self, name: str) -> None:
        """Delete a job that has not ended, with its pods. Nothing happens where it has ended or does not exist."""
        for tried in range(_STOP_TRIES):
            document = self._document(name, self.patience)
            if document is None or job_state(document).status.is_terminal:
                return
            metadata = document["metadata"]
            # A job that has ended since must stay, because its end has not been seen. Its document changes often,
            # so the last try only insists on the same job.
            seen = {"uid": metadata["uid"]}
            if tried < _STOP_TRIES - 1:
                seen["resourceVersion"] = metadata["resourceVersion"]
            # Foreground: the job is there until its pods are gone.
            options = {"propagationPolicy": "Foreground", "preconditions": seen}
            try:
                self._api().delete(f"{self._path}/{name}", options, self.patience)
            except ClusterConflictError:
                continue
            except (ClusterGoneError, ClusterNotFoundError):
                pass
            return

    def under_names_of(self, prefix: str, run: str) -> Iterator[ActiveJob]:
        """The jobs that have the labels of this run, including jobs that Muster did not create."""
        for job in self._listed(prefix, f"{LABEL_STACK}={prefix},{LABEL_RUN}={run}"):
            if job.name.run == run:
                yield job

    def active(self, prefix: str, budget: TimeBudget) -> Iterator[ActiveJob]:  # noqa: ARG002 - the protocol's
        """The jobs with the label of the stack, of any run, including jobs that Muster did not create."""
        return self._listed(prefix, f"{LABEL_STACK}={prefix}")

    def current(self, prefix: str) -> list[Job]:
        """The jobs with the label of the stack, in whatever state."""
        found = self._items(f"{LABEL_STACK}={prefix}")
        return [self._job(item, job_state(item)) for item in found if JobName.parse(_name(item), prefix) is not None]

    def _listed(self, prefix: str, selector: str) -> Iterator[ActiveJob]:
        for item in self._items(selector):
            name, status = JobName.parse(_name(item), prefix), job_state(item).status
            if name is not None and not status.is_terminal:
                arn, created_at = self._arn(str(name)), item["metadata"]["creationTimestamp"]
                if len(self._tags) >= _TAGS_KEPT:
                    self._tags.clear()
                self._tags[arn] = tags_of(item["metadata"])
                yield ActiveJob(name, arn, datetime.fromisoformat(created_at), status is JobStatus.STOPPING)

    def _items(self, selector: str) -> Iterator[Json]:
        # Without its operator a cluster has no such jobs.
        with suppress(ClusterGoneError, ClusterNotFoundError):
            yield from self._api().list(self._path, self.patience, labelSelector=selector)

    def _pods(self, name: str) -> list[Json]:
        """The pods of a job. What they say is not needed, so no error about them is one."""
        parts = JobName.parse(name, name.partition("-")[0])
        if parts is None:
            return []
        labels = job_labels(parts.prefix, parts.run, parts.rank, parts.attempt)
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        try:
            return list(
                self._api().list(f"/api/v1/namespaces/{self.namespace}/pods", _IMPATIENT, labelSelector=selector)
            )
        except (ClusterGoneError, ClusterRefusedError, OSError):
            return []

    def _document(self, name: str, budget: TimeBudget) -> Json | None:
        try:
            return self._api().get(f"{self._path}/{name}", budget)
        except (ClusterGoneError, ClusterNotFoundError):
            return None

    def _job(self, document: Json, state: JobState) -> Job:
        name = _name(document)
        return JobOnCluster(
            name=name,
            arn=self._arn(name),
            status=state.status.value,
            secondary=state.secondary,
            reason=state.reason,
            artifacts=None,
            changed_at=state.changed_at or clock.now(),
            instance_type=_instance_type(document),
            # The nodes of a cluster are paid for whether a job runs on them or not (`contract.run.spending`).
            billable_seconds=None,
            details=JobDetails(instances=state.instances or None),
            state=state,
            tags=tags_of(document["metadata"]),
        )

    def _arn(self, name: str) -> str:
        return f"{self.cluster}/{self.namespace}/{name}"

    def _api(self) -> KubernetesApi:
        return self._apis.api(self.cluster)


def _name(document: Json) -> str:
    return str(document["metadata"]["name"])


def _instance_type(document: Json) -> str | None:
    try:
        return str(document["spec"]["replicaSpecs"][0]["template"]["spec"]["nodeSelector"][TYPE_LABEL])
    except (KeyError, IndexError, TypeError):
        return None


def _without_private_values(message: str, request: Mapping[str, Any]) -> str:
    """The API's words without values that may be secret: they go into the result of the run."""
    shown = _REFUSED_VALUE.sub(r"\g<kind> (not shown)", message)
    for value in _environment_values(request):
        shown = shown.replace(value, "(not shown)")
    return shown


def _environment_values(document: Mapping[str, Any]) -> Iterator[str]:
    for spec in document["spec"]["replicaSpecs"]:
        for container in spec["template"]["spec"]["containers"]:
            for variable in container.get("env", []):
                own = str(variable["name"]).startswith(_OWN_NAMES)
                if not own and len(str(variable.get("value", ""))) >= _PRIVATE_MIN:
                    yield str(variable["value"])
