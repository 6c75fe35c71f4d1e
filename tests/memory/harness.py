"""The control plane over the AWS in memory: the parts of a stack that a test of the functions needs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from unittest.mock import patch
from urllib.parse import quote_plus

from muster.contract.names import METRICS_NAMESPACE
from muster.contract.run.notice_events import notices_of
from muster.contract.run.notices import EndNotice, Notice, NoticeKind
from muster.contract.run.plan import Place
from muster.contract.run.record import Record
from muster.contract.run.result import Result
from muster.contract.spec.stack_defaults import StackDefaults
from muster.contract.training.clusters import Cluster as StackCluster
from muster.contract.training.clusters import Clusters
from muster.control.active_run import ActiveRun
from muster.control.admit import admit
from muster.control.attempt import attempt
from muster.control.attempt_request import AttemptRequest, Launch
from muster.control.aws.clients import Clients, Service
from muster.control.aws.executions import Executions
from muster.control.aws.launcher_sessions import Launcher
from muster.control.aws.task_tokens import TokenRequest, caught_error, workflow_state
from muster.control.control_plane import ControlPlane
from muster.control.plan import Deployment, PlanRequest, make_plan
from muster.control.react import JobStateChange, Reaction, react
from muster.control.replica_package import ReplicaPackage
from muster.control.runtime import clock
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.function import metrics, read_environment
from muster.control.runtime.function_settings import AttemptEnvironment, FunctionEnvironment
from muster.options.hyperpod.contract.wake_events import CLUSTER_EVENTS
from muster.options.hyperpod.control.cluster_clients import ClusterClients
from muster.options.hyperpod.control.events import heed
from muster.options.hyperpod.control.heeding import heed_notices
from muster.options.places.control.place_clients import PlaceClients
from tests.memory.cloud import ACCOUNT, MemoryCloud
from tests.memory.kubernetes import Cluster
from tests.memory.places import PLACES, MemoryPlace
from tests.memory.workflow import Answer

if TYPE_CHECKING:
    from mypy_boto3_sts.type_defs import CredentialsTypeDef

BUS = "muster-bus"
PREFIX = "muster"
RUN = "one"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/replica"
LAUNCHER_ROLE = f"arn:aws:iam::{ACCOUNT}:role/launcher"
POD_ROLE = f"arn:aws:iam::{ACCOUNT}:role/pods"
CLUSTER = StackCluster(name="hyper", eks_cluster="eks-one", namespaces=("team-a", "team-b"))
"""The cluster of a harness with `clusters`. Its jobs are in `harness.cluster`."""
CLUSTER_SPEC: dict[str, Any] = {"backend": "hyperpod", "hyperpod": {"cluster": "hyper"}}
PACKAGE = Path(__file__)
"""Some file in place of the replica package."""
SPEC = {"replicas": 1, "trainer": "package.module:train", "image": "image:1", "instance_type": "ml.m5.large"}


class MemoryClients(Clients):
    """Clients of an AWS in memory; only those of `services` where a test holds what a function opens."""

    def __init__(self, cloud: MemoryCloud, services: tuple[Service, ...] = get_args(Service)) -> None:
        # Clients keeps each client in the attribute of its name: one that is there already is not made.
        # That of the logs is made when it is used, by whatever function.
        opened = {name: cloud.client(name) for name in (*services, "logs")}
        vars(self).update(opened, cloud=cloud)

    def part(self, kind: Callable[[Clients], Any]) -> Any:
        """What calls clusters and places, in memory."""
        if kind is PlaceClients:
            return self.cloud.place_clients()
        assert kind is ClusterClients
        return MemoryClusterClients(self.cloud)

    def sagemaker_in(self, credentials: CredentialsTypeDef) -> Any:
        """SageMaker in a session."""
        return self.cloud.client("sagemaker", credentials["AccessKeyId"])

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__("__dict__")
        # It would be made during an event, which costs time.
        assert name not in get_args(Service) or name in found, f"the function did not open a client of {name}"
        return super().__getattribute__(name)


class MemoryClusterClients:
    """With what a function calls the clusters of an AWS in memory."""

    def __init__(self, cloud: MemoryCloud) -> None:
        self._cloud = cloud
        self.eks = cloud.client("eks")

    def transport(self, endpoint: str, authority: str) -> Any:
        """The API of a cluster."""
        assert authority == "PEM"
        return self._cloud.kubernetes.transport(endpoint)

    def token(self, eks_cluster: str) -> str:
        """A new token."""
        return str(self._cloud.kubernetes.token(eks_cluster))


class ControlHarness:
    """A cloud, a control plane over it, and the workflow's part: executions, tokens, and the delivery of events.

    `tries` is that of the cloud's clients, `cap` the stack's limit on concurrent replicas. A second harness over a
    `cloud` is a function that starts anew: it has read nothing yet.
    """

    def __init__(
        self,
        *,
        tries: int = 1,
        cap: int | None = None,
        cloud: MemoryCloud | None = None,
        clusters: bool = False,
        places: bool = False,
    ) -> None:
        self.cloud = cloud or MemoryCloud(tries=tries)
        self.environment = {"MUSTER_BUCKET": self.cloud.bucket, "MUSTER_JOB_PREFIX": PREFIX, "MUSTER_BUS": BUS}
        if cap is not None:
            self.environment["MUSTER_MAX_CONCURRENT_REPLICAS"] = str(cap)
        stack_clusters = (CLUSTER,) if clusters else None
        if clusters:
            self.environment["MUSTER_CLUSTERS"] = Clusters(clusters=(CLUSTER,)).to_json().decode()
            if cloud is None:
                self.cloud.kubernetes.add(CLUSTER.eks_cluster, *CLUSTER.namespaces)
        if places:
            self.environment["MUSTER_PLACES"] = PLACES.to_json().decode()
            if cloud is None:
                self.cloud.add_places()
        settings = read_environment(FunctionEnvironment, self.environment)
        self.plane = ControlPlane(settings, MemoryClients(self.cloud))
        launches = read_environment(AttemptEnvironment, {**self.environment, "MUSTER_LAUNCHER_ROLE_ARN": LAUNCHER_ROLE})
        self.launching = ControlPlane(launches, MemoryClients(self.cloud)) if places else self.plane
        """Of the function attempt, whose sessions in places have tags."""
        self.launcher = Launcher(self.plane.clients, LAUNCHER_ROLE, PREFIX)
        self.executions = Executions(self.plane.clients.stepfunctions, self.cloud.workflow.machine_arn)
        place = Place(bucket=self.cloud.bucket, role_arn=ROLE, job_prefix=PREFIX)
        self.deployment = Deployment(
            place,
            StackDefaults(clusters=stack_clusters),
            ReplicaPackage(PACKAGE),
            pod_role_arn=POD_ROLE if clusters else None,
        )
        self._retries = itertools.count()
        self._started: dict[str, str] = {}

    @contextmanager
    def installed(self) -> Iterator[ControlHarness]:
        """With virtual time in place of the machine's. What is counted outside of a handler goes to no log."""
        # Powertools reads the namespace when it is imported.
        with self.cloud.clock.install(), patch.object(metrics.provider, "namespace", METRICS_NAMESPACE):
            try:
                yield self
            finally:
                metrics.provider.clear_metrics()

    # --- runs ----------------------------------------------------------------------------------

    def plan(self, name: str = RUN, /, **fields: Any) -> ActiveRun:
        """Start an execution and plan its run: `SPEC` with these fields."""
        self.executions.start(name, "{}")
        make_plan(self.plane, self.deployment, self.plan_request(name, **fields))
        return self.plane.runs.require(name)

    def plan_request(self, name: str = RUN, /, **fields: Any) -> PlanRequest:
        """What the workflow sends to plan."""
        return PlanRequest(
            execution_name=name,
            execution_arn=self.cloud.workflow.execution_arn(name),
            started_at=self._started.setdefault(name, clock.now()),
            input={**SPEC, **fields},
        )

    def record(self, rank: int = 0, run: str = RUN) -> Record:
        """The record of a replica that has one."""
        found = self.plane.runs.require(run).documents.record(rank).record
        assert found is not None
        return found

    def result(self, run: str = RUN) -> Result | None:
        """The settlement of a run."""
        return self.plane.runs.require(run).documents.result()

    def keys(self, prefix: str) -> list[str]:
        """What lies under `prefix` of a run's part of `control/`, without it."""
        return [key.removeprefix(prefix) for key in self.cloud.s3.objects(self.cloud.bucket) if key.startswith(prefix)]

    # --- the workflow --------------------------------------------------------------------------

    def request(self, rank: int = 0, attempt: int = 1, run: str = RUN, **fields: Any) -> AttemptRequest:
        """What the workflow sends to attempt: a fresh token, a state entered now."""
        values = {"token": self.cloud.workflow.token(run), "entered_at": clock.now(), "retry": next(self._retries)}
        given = {"run": run, "rank": rank, "attempt": attempt, **values, **fields}
        return AttemptRequest.model_validate(given)

    def admit(self, run: str = RUN, token: str | None = None, **fields: Any) -> bool:
        """Call admit as the workflow does, with a fresh token unless it is given."""
        values = {
            "token": token or self.cloud.workflow.token(run),
            "entered_at": clock.now(),
            "retry": next(self._retries),
        }
        return admit(self.plane, TokenRequest.model_validate({"run": run, **values, **fields}))

    def arm(self, rank: int = 0, attempt: int = 1, run: str = RUN) -> Launch:
        """Call attempt as the workflow does."""
        return self.attempt(self.request(rank, attempt, run))

    def attempt(self, request: AttemptRequest) -> Launch:
        """Call attempt with this request."""
        plane = self.launching
        return attempt(plane, self.launcher, plane.runs.require(request.run).replica(request.rank), request)

    def answer(self, rank: int = 0, run: str = RUN) -> dict[str, Any] | None:
        """With what the replica's workflow, which waits on the record's token, continues; None while it waits."""
        return self.output(self.record(rank, run).token)

    def output(self, token: str) -> dict[str, Any] | None:
        """The state that a token was completed with; the workflow catches some of them as errors."""
        found: Answer | None = self.cloud.workflow.answer(token)
        if found is None:
            return None
        if found.error is None:
            return dict(found.output)
        state = dict(json.loads(found.cause or ""))
        assert found.error == caught_error(state)
        return state

    def decided(self, rank: int = 0, run: str = RUN) -> dict[str, Any]:
        """What a workflow gets that asks for the decision in the record."""
        decision = self.record(rank, run).decision
        assert decision is not None
        return dict(workflow_state(run, rank, decision))

    # --- jobs and events -----------------------------------------------------------------------

    def job(self, rank: int = 0, attempt: int = 1, run: str = RUN) -> str:
        """The name of an attempt's job."""
        return str(self.plane.runs.require(run).replica(rank).job_name(attempt))

    def place(self, name: str) -> MemoryPlace:
        """A place of the stack."""
        return self.cloud.places[name]

    @property
    def cluster(self) -> Cluster:
        """The stack's cluster."""
        return self.cloud.kubernetes.clusters[CLUSTER.eks_cluster]

    def notice(self, kind: NoticeKind, rank: int = 0, attempt: int = 1, run: str = RUN, **body: Any) -> dict[str, Any]:
        """Put a notice as a pod does; the event that the topic brings to react. `body`: of an end notice."""
        mark = f"pod-0-{next(self._retries)}"
        notice = Notice(run, kind, rank, None if kind is NoticeKind.MISSING else attempt, mark)
        times = {"started_at": clock.now(), "ended_at": clock.now()}
        ended = EndNotice.model_validate({"exit_code": 0, **times, **body})
        self.plane.store.create(notice.key, ended.to_json() if kind is NoticeKind.END else b"{}")
        return sns_event(self.cloud.bucket, notice.key)

    def heed(self, event: dict[str, Any], seconds: float = 280.0) -> list[str]:
        """Let react get an event of a topic, or of HyperPod; what it did about it."""
        budget = TimeBudget.of(seconds)
        reactions = heed(self.plane, event, budget)
        if reactions is None:
            reactions = heed_notices(self.plane, notices_of(event, self.cloud.bucket), budget)
        return [reaction.what for reaction in reactions]

    def deliver(self) -> list[str]:
        """Let react see every event of a training job that is on its way; what it did about each."""
        changes = [
            JobStateChange.of(event) for event in self.cloud.notifications.drain() if event["source"] == "aws.sagemaker"
        ]
        return [self.react(change).what for change in changes]

    def last_event(self, job: str) -> JobStateChange:
        """The latest event of a job, taken off its way with all that are."""
        events = self.cloud.notifications.drain()
        return JobStateChange.of([one for one in events if one["detail"].get("TrainingJobName") == job][-1])

    def react(self, change: JobStateChange) -> Reaction:
        """Let react see an event."""
        return react(self.plane, change)

    def emitted(self) -> list[str]:
        """The types of the events on the stack's bus, in order."""
        return [entry.detail_type for entry in self.cloud.events.entries]


def sns_event(bucket: str, *keys: str) -> dict[str, Any]:
    """What a topic sends to a function about new objects: S3's event as text."""
    records = [
        {
            "eventSource": "aws:s3",
            "eventName": "ObjectCreated:Put",
            "s3": {"bucket": {"name": bucket}, "object": {"key": quote_plus(key), "size": 2}},
        }
        for key in keys
    ]
    sent = {"Type": "Notification", "Message": json.dumps({"Records": records})}
    return {"Records": [{"EventSource": "aws:sns", "EventVersion": "1.0", "Sns": sent}]}


def node_event(cluster: str = CLUSTER.name, status: str = "Unhealthy") -> dict[str, Any]:
    """HyperPod's event about a node."""
    detail = {"ClusterName": cluster, "InstanceId": "i-0123", "HealthSummary": {"HealthStatus": status}}
    return {"source": "aws.sagemaker", "detail-type": CLUSTER_EVENTS[0], "detail": detail}


def budget(seconds: float = 600.0) -> TimeBudget:
    """A function's time."""
    return TimeBudget.of(seconds)
