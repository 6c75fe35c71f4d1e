"""The rights of a run's pods on each cluster that it uses: a service account and its pod identity association.

Both are made when the run is planned, and deleted when no job of it is left: at its end, or by the sweep. Every step is
idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from botocore.exceptions import ClientError

from muster.contract import names
from muster.contract.backend import Backend
from muster.contract.errors import Problem, SpecError, StatedProblem
from muster.contract.names import is_run_name
from muster.contract.run.plan import Plan
from muster.control.aws.aws_errors import error_code, error_message, is_transient, tolerated
from muster.control.runtime import clock
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.parallel import each_that_succeeds
from muster.control.stop import StillRunningError
from muster.options.hyperpod.contract.object_identity import (
    ACCOUNT_HEAD,
    GROUP,
    LABEL_RUN,
    LABEL_STACK,
    PLURAL,
    VERSION,
    service_account,
)
from muster.options.hyperpod.contract.session_policy import POLICY_CHARACTERS_MAX, session_policy
from muster.options.hyperpod.control.cluster_apis import ClusterApis
from muster.options.hyperpod.control.cluster_clients import IN_USE, NOT_FOUND
from muster.options.hyperpod.control.cluster_errors import (
    ClusterConflictError,
    ClusterGoneError,
    ClusterNotFoundError,
    ClusterRefusedError,
    ClusterUnauthorizedError,
    ClusterUnknownError,
)

if TYPE_CHECKING:
    from muster.options.hyperpod.control.cluster_jobs import ClusterJobs

TAG_STACK = "muster:stack"
_REMEDY = "deploy the stack again: its functions need their access entries and roles on the cluster"


class ClusterPlace(NamedTuple):
    """Where replicas of a run are: a namespace of a cluster, and whether their pods use the user's own account."""

    cluster: str
    namespace: str
    own_account: bool


def cluster_places(plan: Plan) -> list[ClusterPlace]:
    """The places of a planned run, each once."""
    spec = plan.spec
    ranks = range(spec.replicas) if spec.overrides else range(1)
    found = (spec.of_rank(rank) for rank in ranks)
    asked = (one.hyperpod for one in found if one.backend is Backend.HYPERPOD and one.hyperpod is not None)
    return list(
        dict.fromkeys(
            ClusterPlace(one.cluster or "", one.namespace or "", one.service_account is not None) for one in asked
        )
    )


@dataclass(frozen=True)
class Association:
    """A pod identity association of some run of a stack."""

    cluster: str
    namespace: str
    run: str
    id: str


class RunIdentities:
    """The service accounts and associations of runs. `jobs_in` gives the jobs in a namespace of a cluster."""

    def __init__(self, apis: ClusterApis, jobs_in: Callable[[str, str], ClusterJobs], job_prefix: str) -> None:
        self._apis, self._jobs_in, self._job_prefix = apis, jobs_in, job_prefix

    # --- planning ------------------------------------------------------------------------------

    def prepare(self, plan: Plan, pod_role_arn: str | None, budget: TimeBudget) -> None:
        """Make sure that the run's jobs can be created and that its pods have their rights.

        Raises:
            SpecError: a place cannot be used; it names all of them.
            ClusterUnavailableError, ClientError: a later try may succeed.
        """
        policy = session_policy(plan)
        places = cluster_places(plan)
        problems = [found for place in places if (found := self._reach(place, budget)) is not None]
        needed = [place for place in places if not place.own_account]
        if needed and len(policy) > POLICY_CHARACTERS_MAX:
            length = f"{len(policy):,} characters of the session policy of its pods"
            remedy = "start the run under a shorter name, or name a service account of yours in hyperpod"
            problems.append(Problem("name", length, remedy, f"EKS takes {POLICY_CHARACTERS_MAX:,}"))
        if needed and pod_role_arn is None:
            remedy = "deploy the stack again, or name a service account of yours in hyperpod.service_account"
            problems.append(StatedProblem("hyperpod", "the stack has no role for pods", remedy))
        if problems or pod_role_arn is None:
            if problems:
                raise SpecError(problems)
            return
        for place in needed:
            problem = self._associate(plan, place, pod_role_arn, policy) or self._account(plan, place, budget)
            if problem is not None:
                raise SpecError([problem])

    def _reach(self, place: ClusterPlace, budget: TimeBudget) -> Problem | None:
        """Why jobs cannot be created in a place; None where it answers as it should."""
        field, where = "hyperpod.cluster", f"{place.cluster}, namespace {place.namespace}"
        try:
            path = f"/apis/{GROUP}/{VERSION}/namespaces/{place.namespace}/{PLURAL}"
            self._apis.api(place.cluster).get(path, budget, limit="1")
        except (ClusterGoneError, ClusterUnknownError) as error:
            return StatedProblem(field, str(error), "")
        except ClusterNotFoundError:
            remedy = "install the HyperPod training operator on the cluster"
            return StatedProblem(field, f"{where} has no HyperPodPyTorchJob", remedy)
        except ClusterRefusedError as refused:
            if refused.status == 403:
                return StatedProblem(field, f"{where} refuses the stack: {refused.message or refused.reason}", _REMEDY)
            return StatedProblem(field, str(refused), "see the cluster's API server")
        except ClusterUnauthorizedError:
            return StatedProblem(field, f"{where} refuses the stack: 401 Unauthorized", _REMEDY)
        return None

    def _associate(self, plan: Plan, place: ClusterPlace, role_arn: str, policy: str) -> Problem | None:
        """Give the pods of the run's account the role within the policy; an association of an earlier try stays."""
        eks, cluster = self._apis.clients.eks, self._apis.cluster(place.cluster).eks_cluster
        account, tags = service_account(plan.run), {names.TAG_RUN: plan.run, TAG_STACK: self._job_prefix}
        request = {
            "clusterName": cluster,
            "namespace": place.namespace,
            "serviceAccount": account,
            "roleArn": role_arn,
            "policy": policy,
            # EKS requires it beside a policy.
            "disableSessionTags": True,
            "tags": tags,
        }
        for _ in range(2):
            try:
                eks.create_pod_identity_association(**request)
            except ClientError as error:
                if error_code(error) != IN_USE:
                    return _refusal(error, place)
            else:
                return None
            found = next((one for one in self._of(cluster, place.namespace, account) if one), None)
            if found is None:
                continue
            if not tags.items() <= (found.get("tags") or {}).items():
                remedy = "start the run under another name, or delete the association"
                what = f"the service account {account} of {place.cluster} has an association that is not Muster's"
                return StatedProblem("name", what, remedy)
            if (found.get("roleArn"), found.get("policy"), found.get("disableSessionTags")) == (role_arn, policy, True):
                return None
            # Of an earlier run of this name, or of a stack that had another role.
            self._disassociate(cluster, str(found["associationId"]))
        message = f"the pod identity association of {account} on {cluster} changes; the call will be retried"
        raise ConnectionError(message)

    def _of(self, cluster: str, namespace: str, account: str) -> Iterator[dict[str, Any]]:
        """The associations of a service account, of which EKS takes one."""
        for one in self._listed(cluster, namespace=namespace, serviceAccount=account):
            yield self._described(cluster, str(one["associationId"]))

    def _listed(self, cluster: str, **place: str) -> Iterator[dict[str, Any]]:
        """What a list of an EKS cluster's associations shows of each; none where there is no such cluster."""
        pages = self._apis.clients.eks.get_paginator("list_pod_identity_associations")
        with tolerated(NOT_FOUND):
            for page in pages.paginate(clusterName=cluster, **place):
                yield from page["associations"]

    def _described(self, cluster: str, association: str) -> dict[str, Any]:
        """An association with its role and tags; empty where it is gone."""
        eks = self._apis.clients.eks
        answer: dict[str, dict[str, Any]] = {}
        with tolerated(NOT_FOUND):
            answer = eks.describe_pod_identity_association(clusterName=cluster, associationId=association)
        return answer.get("association", {})

    def _account(self, plan: Plan, place: ClusterPlace, budget: TimeBudget) -> Problem | None:
        account, api = service_account(plan.run), self._apis.api(place.cluster)
        path = f"/api/v1/namespaces/{place.namespace}/serviceaccounts"
        labels = self._labels(plan.run)
        document = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": account, "labels": labels},
            "automountServiceAccountToken": False,
        }
        try:
            api.create(path, document, budget)
        except ClusterNotFoundError:
            remedy = "create it, or name another one"
            what = f"the cluster {place.cluster} has no namespace {place.namespace}"
            return StatedProblem("hyperpod.namespace", what, remedy)
        except ClusterConflictError:
            found = api.get(f"{path}/{account}", budget).get("metadata", {}).get("labels") or {}
            if not labels.items() <= found.items():
                what = f"a service account {account} exists in {place.namespace} and is not Muster's"
                return StatedProblem("name", what, "start the run under another name, or delete it")
        except ClusterRefusedError as refused:
            remedy = "see the message; the role of the function plan may create service accounts there"
            return StatedProblem("hyperpod.namespace", str(refused), remedy)
        return None

    def _labels(self, run: str) -> dict[str, str]:
        """By which an account of a run is known as Muster's."""
        return {LABEL_STACK: self._job_prefix, LABEL_RUN: run}

    # --- clearing up ---------------------------------------------------------------------------

    def remove(self, plan: Plan, budget: TimeBudget) -> None:
        """Take away the rights of the pods of a run that has ended. Nothing happens where there are none.

        Raises:
            StillRunningError: a job of the run is still ending, and its pods write their results with these rights.
        """
        for place in cluster_places(plan):
            if not place.own_account:
                self._remove(place.cluster, place.namespace, plan.run, budget)

    def sweep(self, live_runs: Callable[[], Collection[str]], young_seconds: float, errors: list[str]) -> None:
        """The same for what is left of runs that are not among `live_runs`, the running ones, on all clusters."""
        now = clock.utc_now()

        def sweep(one: Association) -> None:
            if one.run not in live and self._is_older(one, young_seconds, now):
                patience = self._jobs_in(one.cluster, one.namespace).patience
                self._remove(one.cluster, one.namespace, one.run, patience)

        names = [cluster.name for cluster in self._apis.clusters.clusters]
        listed: Sequence[list[Association]] = each_that_succeeds(self._on_cluster, names, errors, str)
        found = [one for of_cluster in listed for one in of_cluster]
        # After the listing: what a run that starts in between has been given is not in it.
        live = live_runs()
        each_that_succeeds(sweep, found, errors, lambda one: f"the rights of the pods of {one.run} on {one.cluster}")

    def _remove(self, cluster: str, namespace: str, run: str, budget: TimeBudget) -> None:
        jobs = self._jobs_in(cluster, namespace)
        if left := sum(1 for _ in jobs.under_names_of(self._job_prefix, run)):
            message = f"{left} jobs of {run} are still ending in {jobs.place}"
            raise StillRunningError(message)
        account = service_account(run)
        try:
            api, eks_cluster = self._apis.api(cluster), self._apis.cluster(cluster).eks_cluster
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}"
            metadata = api.get(path, budget).get("metadata") or {}
            # A plan that found an account of another owner has left its association.
            if self._labels(run).items() <= (metadata.get("labels") or {}).items():
                api.delete(path, {"preconditions": {"uid": metadata["uid"]}}, budget)
        except ClusterGoneError:
            return
        except ClusterNotFoundError:
            pass
        # Last: by its association the sweep finds what is left of a run.
        for found in self._of(eks_cluster, namespace, account):
            tags = found.get("tags") or {}
            if tags.get(names.TAG_RUN) == run and tags.get(TAG_STACK) == self._job_prefix:
                self._disassociate(eks_cluster, str(found["associationId"]))

    def _disassociate(self, cluster: str, association: str) -> None:
        with tolerated(NOT_FOUND):
            self._apis.clients.eks.delete_pod_identity_association(clusterName=cluster, associationId=association)

    def _on_cluster(self, cluster: str) -> list[Association]:
        """The associations on a cluster whose accounts are named like those of runs; of any stack."""
        return [
            Association(cluster, str(one["namespace"]), run, str(one["associationId"]))
            for one in self._listed(self._apis.cluster(cluster).eks_cluster)
            if is_run_name(run := str(one["serviceAccount"]).removeprefix(ACCOUNT_HEAD))
            and str(one["serviceAccount"]).startswith(ACCOUNT_HEAD)
        ]

    def _is_older(self, association: Association, seconds: float, now: datetime) -> bool:
        """Whether an association is this stack's, and at least so old."""
        found = self._described(self._apis.cluster(association.cluster).eks_cluster, association.id)
        is_own = (found.get("tags") or {}).get(TAG_STACK) == self._job_prefix
        return is_own and (now - found["createdAt"]).total_seconds() >= seconds


def _refusal(error: ClientError, place: ClusterPlace) -> Problem:
    """A refused association as a problem of the spec.

    Raises:
        ClientError: a later try may succeed.
    """
    if is_transient(error):
        raise error
    words = f"the rights of the pods on {place.cluster}: {error_code(error)}: {error_message(error)}"
    return StatedProblem("hyperpod", words, "deploy the stack again, or name a service account of yours in hyperpod")
