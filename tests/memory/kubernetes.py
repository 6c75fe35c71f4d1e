"""EKS clusters whose Kubernetes API has jobs, pods and service accounts; the operator is the test's hand.

A request arrives as method, path and body, as HTTPS would bring it. Behaviour is that of Kubernetes where it is
documented: names are unique, deletion in the foreground waits for the pods, preconditions and selectors hold.
"""

from __future__ import annotations

import base64
import itertools
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from muster.options.hyperpod.contract.job_schema import schema_problems
from muster.options.hyperpod.contract.object_identity import GROUP, KIND, PLURAL, VERSION
from muster.options.hyperpod.control.cluster_https import HttpAnswer
from tests.memory.calls import AwsError, Operation, Parameters, refuse

if TYPE_CHECKING:
    from tests.memory.calls import Calls
    from tests.memory.clock import VirtualClock
from tests.memory.plain_data import copied

TOKEN_SECONDS = 900.0
"""How long EKS takes a token."""
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
Json = dict[str, Any]
_JOBS, _PODS, _ACCOUNTS = PLURAL, "pods", "serviceaccounts"
_NAMES = {_JOBS: "Job", _PODS: "Pod", _ACCOUNTS: "ServiceAccount"}
_VERBS = {"GET": "Get", "POST": "Create", "DELETE": "Delete"}
_POLICY_MAX = 2_048


class StatusError(Exception):
    """An error of the API, as a Status object."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


@dataclass
class Association:
    """A pod identity association."""

    cluster: str
    namespace: str
    account: str
    id: str
    role: str
    policy: str | None
    disable_tags: bool
    tags: dict[str, str]
    created: Any


@dataclass
class Cluster:
    """One EKS cluster and its API. What follows `objects` is the test's hand."""

    name: str
    clock: VirtualClock
    namespaces: set[str]
    objects: dict[tuple[str, str, str], Json] = field(default_factory=dict)
    """By resource, namespace and name."""
    full: bool = False
    """Whether Kueue has no room: new jobs with a queue wait."""
    stop_seconds: float = 2.0
    """How long the pods of a deleted job take to end."""
    has_operator: bool = True
    on_change: Any = None
    """Called with each job that has changed, or is gone (None as its document)."""
    versions: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    lock: Any = field(default_factory=threading.RLock)

    def jobs(self, *phases: str) -> list[str]:
        """The names of the jobs in any of these phases; of all jobs without any."""
        with self.lock:
            found = [(key[2], one) for key, one in self.objects.items() if key[0] == _JOBS]
        return [name for name, one in found if not phases or phase(one) in phases]

    def job(self, name: str) -> Json:
        """A job's document: change it through `touch`."""
        return next(one for key, one in self.objects.items() if key[0] == _JOBS and key[2] == name)

    def touch(self, name: str, **status: Any) -> None:
        """Change a job's status as the operator does."""
        with self.lock:
            document = self.job(name)
            document.setdefault("status", {}).update(status)
            self._changed(document)

    def condition(self, name: str, kind: str, *, holds: bool = True, reason: str = "", message: str = "") -> None:
        """Set a condition of a job."""
        with self.lock:
            conditions = self.job(name).setdefault("status", {}).setdefault("conditions", [])
            conditions[:] = [one for one in conditions if one["type"] != kind]
            words = {key: value for key, value in (("reason", reason), ("message", message)) if value}
            at = {"lastTransitionTime": self._now()}
            conditions.append({"type": kind, "status": "True" if holds else "False", **words, **at})
            self.touch(name)

    def admit(self, name: str) -> None:
        """Kueue gives a job its quota."""
        with self.lock:
            self.job(name)["spec"]["runPolicy"]["suspend"] = False
            self.condition(name, "Suspended", holds=False)

    def preempt(self, name: str) -> None:
        """Kueue takes the quota away: the job is suspended until it is admitted again."""
        with self.lock:
            self.job(name)["spec"]["runPolicy"]["suspend"] = True
            self.condition(name, "Running", holds=False)
            self.condition(name, "Suspended", reason="Suspended", message="Preempted to accommodate another workload")

    def run(self, name: str) -> None:
        """The pods of a job run."""
        with self.lock:
            self.condition(name, "Restarting", holds=False)
            self.condition(name, "PodsRunning")
            self.condition(name, "Running", reason="Running")
            self.touch(name, startTime=self.job(name)["status"].get("startTime") or self._now())

    def restart(self, name: str, reason: str = "NodeFault", message: str = "Found unhealthy node") -> None:
        """The operator begins to start the pods of a job again."""
        with self.lock:
            self.condition(name, "Running", holds=False, reason=reason, message=message)
            self.condition(name, "Restarting", reason=reason, message=message)
            self.touch(name, restartCount=self.job(name)["status"].get("restartCount", 0) + 1)

    def scale(self, name: str, pods: int) -> None:
        """Elastic scaling: another number of pods."""
        self.touch(name, elasticScalingStatus={"targetReplicas": {"pod": pods}})

    def complete(self, name: str) -> None:
        """The job has succeeded."""
        with self.lock:
            self.condition(name, "Running", holds=False)
            self.condition(name, "Completed")
            self.touch(name, completionTime=self._now())

    def fail(self, name: str, reason: str = "WorkerCrash", message: str = "") -> None:
        """The operator has given the job up."""
        with self.lock:
            self.condition(name, "Running", holds=False)
            self.condition(name, "Failed", reason=reason, message=message)
            self.touch(name, completionTime=self._now())

    def add_pod(self, job: str, status: Json) -> None:
        """A pod of a job, with its labels."""
        document = self.job(job)
        name, namespace = f"{job}-pod-0", document["metadata"]["namespace"]
        metadata = {"name": name, "labels": dict(document["metadata"]["labels"])}
        self.objects[_PODS, namespace, name] = {"metadata": metadata, "status": status}

    def remove(self, name: str) -> None:
        """A person deletes a job; it is gone at once."""
        with self.lock:
            key = next(key for key in self.objects if key[0] == _JOBS and key[2] == name)
            del self.objects[key]
        self._announce(name, None)

    # --- requests ------------------------------------------------------------------------------

    def answer(self, method: str, path: str, body: bytes | None) -> Json:
        """Carry a request out.

        Raises:
            StatusError: it is refused.
        """
        parts = urlsplit(path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        resource, namespace, name = _parsed(parts.path)
        with self.lock:
            if resource == _JOBS and not self.has_operator:
                raise StatusError(404, "NotFound", "the server could not find the requested resource")
            if method == "POST":
                return self._create(resource, namespace, json.loads(body or b"{}"))
            if name is None:
                return self._list(resource, namespace, query)
            found = self.objects.get((resource, namespace, name))
            if found is None:
                raise StatusError(404, "NotFound", f'{resource} "{name}" not found')
            if method == "DELETE":
                return self._delete((resource, namespace, name), found, json.loads(body or b"{}"))
            return copied(found)

    def _create(self, resource: str, namespace: str, document: Json) -> Json:
        if namespace not in self.namespaces:
            raise StatusError(404, "NotFound", f'namespaces "{namespace}" not found')
        name = document["metadata"]["name"]
        if (resource, namespace, name) in self.objects:
            raise StatusError(409, "AlreadyExists", f'{resource} "{name}" already exists')
        if resource == _JOBS and (problems := schema_problems(document)):
            raise StatusError(422, "Invalid", f"{name} is invalid: {problems[0]}")
        stored = copied(document)
        uid = f"{next(self.versions):08}-0000-4000-8000-000000000000"
        stored["metadata"] |= {"namespace": namespace, "uid": uid, "creationTimestamp": self._now()}
        if resource == _JOBS:
            # Kueue's webhook suspends a job with a queue before it is stored.
            policy = stored["spec"].setdefault("runPolicy", {})
            policy["suspend"] = QUEUE_LABEL in stored["metadata"].get("labels", {})
        self.objects[resource, namespace, name] = stored
        self._changed(stored)
        if resource == _JOBS and stored["spec"]["runPolicy"]["suspend"] and not self.full:
            created = copied(stored)
            self.admit(name)
            return created
        return copied(stored)

    def _list(self, resource: str, namespace: str, query: Mapping[str, str]) -> Json:
        wanted = dict(part.split("=", 1) for part in query.get("labelSelector", "").split(",") if part)
        found = [
            one
            for key, one in sorted(self.objects.items())
            if key[:2] == (resource, namespace) and wanted.items() <= one["metadata"].get("labels", {}).items()
        ]
        begin, size = int(query.get("continue", "0")), int(query.get("limit", "500"))
        more = str(begin + size) if begin + size < len(found) else ""
        return {"metadata": {"continue": more}, "items": copied(found[begin : begin + size])}

    def _delete(self, key: tuple[str, str, str], found: Json, options: Json) -> Json:
        for name, value in (options.get("preconditions") or {}).items():
            if found["metadata"].get(name) != value:
                raise StatusError(409, "Conflict", f"Precondition failed: {name} in precondition: {value}")
        in_foreground = options.get("propagationPolicy") == "Foreground"
        if key[0] != _JOBS or not in_foreground:
            del self.objects[key]
        elif "deletionTimestamp" not in found["metadata"]:
            found["metadata"]["deletionTimestamp"] = self._now()
            self._changed(found)
            has_pods = phase(found) in {"Running", "Restarting"}
            self.clock.after(self.stop_seconds if has_pods else 0.05, lambda: self._gone(key, found))
        return {"kind": "Status", "status": "Success"}

    def _gone(self, key: tuple[str, str, str], document: Json) -> None:
        with self.lock:
            if self.objects.get(key) is not document:
                return
            del self.objects[key]
        self._announce(key[2], None)

    def _changed(self, document: Json) -> None:
        document["metadata"]["resourceVersion"] = str(next(self.versions))
        if document["kind"] == KIND:
            self._announce(document["metadata"]["name"], document)

    def _announce(self, name: str, document: Json | None) -> None:
        if self.on_change is not None:
            self.on_change(name, document)

    def _now(self) -> str:
        return f"{self.clock.now():%Y-%m-%dT%H:%M:%SZ}"


def phase(document: Json) -> str:
    """Where a job is, in a word."""
    held = {one["type"] for one in document.get("status", {}).get("conditions", []) if one["status"] == "True"}
    for kind in ("Completed", "Failed"):
        if kind in held:
            return kind
    if "deletionTimestamp" in document["metadata"]:
        return "Deleting"
    if document["spec"]["runPolicy"].get("suspend"):
        return "Suspended"
    return next((kind for kind in ("Restarting", "Running") if kind in held), "Pending")


def _parsed(path: str) -> tuple[str, str, str | None]:
    """Resource, namespace and name in a path."""
    for head in ("/api/v1/namespaces/", f"/apis/{GROUP}/{VERSION}/namespaces/"):
        if path.startswith(head):
            namespace, resource, *name = path.removeprefix(head).split("/")
            assert resource in _NAMES, path
            return resource, namespace, name[0] if name else None
    raise NotImplementedError(path)


def operation(method: str, path: str) -> str:
    """The name of a request: GetJob, ListJobs, CreateServiceAccount."""
    resource, _, name = _parsed(urlsplit(path).path)
    verb = "List" if method == "GET" and name is None else _VERBS[method]
    return f"{verb}{_NAMES[resource]}{'s' if verb == 'List' else ''}"


class Kubernetes:
    """The EKS clusters of one account and region."""

    def __init__(self, clock: VirtualClock, calls: Calls, account: str, region: str) -> None:
        self._clock, self._calls = clock, calls
        self._arn = f"arn:aws:eks:{region}:{account}:"
        self._numbers = itertools.count(1)
        self._tokens: dict[str, tuple[str, Any]] = {}
        self.clusters: dict[str, Cluster] = {}
        self.gone: set[str] = set()
        """Endpoints that do not answer any more: their clusters were deleted, or cannot be reached."""
        self.associations: dict[str, Association] = {}
        self.public = True
        names = {"clusterName", "namespace", "serviceAccount"}
        self.operations = {
            "DescribeCluster": Operation(self._describe, {"name"}),
            "CreatePodIdentityAssociation": Operation(
                self._associate, {*names, "roleArn", "policy", "disableSessionTags", "tags"}
            ),
            "ListPodIdentityAssociations": Operation(self._listed, {*names, "nextToken"}),
            "DescribePodIdentityAssociation": Operation(self._described, {"clusterName", "associationId"}),
            "DeletePodIdentityAssociation": Operation(self._deleted, {"clusterName", "associationId"}),
        }

    def add(self, name: str, *namespaces: str) -> Cluster:
        """A new cluster."""
        cluster = self.clusters[name] = Cluster(name, self._clock, set(namespaces))
        return cluster

    def delete(self, name: str) -> None:
        """A person deletes a cluster with everything in it."""
        del self.clusters[name]
        self.gone.add(endpoint(name))

    # --- the way in ----------------------------------------------------------------------------

    def token(self, cluster: str) -> str:
        """A new token for a cluster's API."""
        text = f"k8s-aws-v1.{next(self._numbers)}"
        self._tokens[text] = cluster, self._clock.now()
        return text

    def transport(self, url: str) -> MemoryTransport:
        """The way to an endpoint."""
        return MemoryTransport(self, url, self._calls)

    def answer(self, url: str, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
        """The answer of the API at an endpoint.

        Raises:
            ConnectionError: nothing answers there.
        """
        cluster = next((one for name, one in self.clusters.items() if endpoint(name) == url), None)
        if cluster is None or url in self.gone:
            message = f"{url} cannot be reached"
            raise ConnectionError(message)
        token = headers["Authorization"].removeprefix("Bearer ")
        of_cluster, made = self._tokens.get(token, ("", self._clock.now()))
        if of_cluster != cluster.name or (self._clock.now() - made).total_seconds() >= TOKEN_SECONDS:
            return failure(401, "Unauthorized", "Unauthorized")
        try:
            found = cluster.answer(method, path, body)
        except StatusError as error:
            return failure(error.code, error.reason, error.message)
        return HttpAnswer(201 if method == "POST" else 200, {}, json.dumps(found).encode())

    # --- EKS -----------------------------------------------------------------------------------

    def _describe(self, request: Parameters) -> Json:
        name = request["name"]
        self._cluster(name)
        shown = {
            "name": name,
            "arn": f"{self._arn}cluster/{name}",
            "status": "ACTIVE",
            "endpoint": endpoint(name),
            "certificateAuthority": {"data": base64.b64encode(b"PEM").decode()},
            "resourcesVpcConfig": {"endpointPublicAccess": self.public},
        }
        return {"cluster": shown}

    def _cluster(self, name: str) -> Cluster:
        if name not in self.clusters:
            refuse("ResourceNotFoundException", f"No cluster found for name: {name}.", 404)
        return self.clusters[name]

    def _associate(self, request: Parameters) -> Json:
        self._cluster(request["clusterName"])
        policy = request.get("policy")
        if policy is not None and (len(policy) > _POLICY_MAX or not request.get("disableSessionTags")):
            refuse("InvalidParameterException", "policy: too long, or beside session tags")
        place = (request["clusterName"], request["namespace"], request["serviceAccount"])
        if any((one.cluster, one.namespace, one.account) == place for one in self.associations.values()):
            refuse("ResourceInUseException", "Association already exists", 409)
        found = Association(
            *place,
            f"a-{next(self._numbers):012}",
            request["roleArn"],
            policy,
            request.get("disableSessionTags", False),
            dict(request.get("tags", {})),
            self._clock.now(),
        )
        self.associations[found.id] = found
        return {"association": self._shown(found)}

    def _listed(self, request: Parameters) -> Json:
        self._cluster(request["clusterName"])
        fields = {"clusterName": "cluster", "namespace": "namespace", "serviceAccount": "account"}
        wanted = {field: request[name] for name, field in fields.items() if name in request}
        found = [
            one
            for one in self.associations.values()
            if all(getattr(one, field) == value for field, value in wanted.items())
        ]
        kept = ("clusterName", "namespace", "serviceAccount", "associationArn", "associationId")
        return {"associations": [{name: self._shown(one)[name] for name in kept} for one in found]}

    def _described(self, request: Parameters) -> Json:
        return {"association": self._shown(self._association(request))}

    def _deleted(self, request: Parameters) -> Json:
        found = self._association(request)
        del self.associations[found.id]
        return {"association": self._shown(found)}

    def _association(self, request: Parameters) -> Association:
        found = self.associations.get(request["associationId"])
        if found is None or found.cluster != request["clusterName"]:
            refuse("ResourceNotFoundException", "No association found", 404)
        return found

    def _shown(self, one: Association) -> Json:
        shown = {
            "clusterName": one.cluster,
            "namespace": one.namespace,
            "serviceAccount": one.account,
            "roleArn": one.role,
            "associationArn": f"{self._arn}podidentityassociation/{one.cluster}/{one.id}",
            "associationId": one.id,
            "tags": dict(one.tags),
            "createdAt": one.created,
            "modifiedAt": one.created,
            "disableSessionTags": one.disable_tags,
        }
        return shown if one.policy is None else {**shown, "policy": one.policy}


class MemoryTransport:
    """The way to one endpoint (`muster.options.hyperpod.control.cluster_https.Transport`)."""

    def __init__(self, kubernetes: Kubernetes, url: str, calls: Calls) -> None:
        self._kubernetes, self._url, self._calls = kubernetes, url, calls

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
        """The answer."""

        def effect() -> HttpAnswer:
            return self._kubernetes.answer(self._url, method, path, headers, body)

        parameters = {"path": path, "body": body}
        try:
            return self._calls.plain("kubernetes", operation(method, path), parameters, effect)
        except AwsError as refused:
            return failure(refused.status, refused.code, refused.message)


def failure(code: int, reason: str, message: str) -> HttpAnswer:
    """An error of the API."""
    status = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code}
    headers = {"retry-after": "1"} if code == 429 else {}
    return HttpAnswer(code, headers, json.dumps(status).encode())


def endpoint(cluster: str) -> str:
    """The endpoint of a cluster."""
    return f"https://{cluster}.eks.example.com"
