"""Plan prepares the clusters of a run, and what it has made there goes with the run."""

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from muster.contract.backend import Backend
from muster.contract.errors import MusterError, SpecError
from muster.contract.run.plan import Plan
from muster.control.active_run import ActiveRun
from muster.control.plan import make_plan
from muster.control.stop import StillRunningError
from muster.control.sweep import SweepRequest, sweep
from muster.options.hyperpod.contract.session_policy import POLICY_CHARACTERS_MAX, session_policy
from muster.options.hyperpod.control.cluster_errors import ClusterUnavailableError
from tests.memory.calls import AwsError, Fault, server_error
from tests.memory.harness import CLUSTER, CLUSTER_SPEC, POD_ROLE, RUN, ControlHarness, budget
from tests.support.control_steps import Row, finished

SLOW = 86_400


def plan(harness: ControlHarness, name: str = RUN, **fields: Any) -> Plan:
    return harness.plan(name, **{**CLUSTER_SPEC, **fields}).plan


def try_to_plan(harness: ControlHarness, name: str = RUN, **fields: Any) -> None:
    harness.executions.start(name, "{}")
    make_plan(harness.plane, harness.deployment, harness.plan_request(name, **{**CLUSTER_SPEC, **fields}))


def refusal(harness: ControlHarness, name: str = RUN, **fields: Any) -> str:
    with pytest.raises(SpecError) as refused:
        try_to_plan(harness, name, **fields)
    assert harness.keys(f"control/{name}/plan.json") == []
    assert harness.cloud.kubernetes.associations == {}
    assert harness.cluster.objects == {}
    return str(refused.value)


def allow(harness: ControlHarness, **listed: tuple[str, ...]) -> None:
    """Let the settings of the stack list something of its cluster."""
    cluster = CLUSTER.model_copy(update=listed)
    defaults = harness.deployment.defaults.model_copy(update={"clusters": (cluster,)})
    harness.deployment = replace(harness.deployment, defaults=defaults)


def remove_rights(harness: ControlHarness, run: ActiveRun) -> None:
    harness.plane.backends.service(Backend.HYPERPOD).clear_up(run.plan, budget())


def test_the_pods_of_a_run_get_its_rights_once(harness: ControlHarness) -> None:
    made = plan(harness)
    [association] = harness.cloud.kubernetes.associations.values()
    assert (association.cluster, association.namespace, association.account) == ("eks-one", "team-a", "muster-one")
    assert (association.role, association.disable_tags) == (POD_ROLE, True)
    assert association.policy == session_policy(made)
    assert ("serviceaccounts", "team-a", "muster-one") in harness.cluster.objects
    assert plan(harness) == made
    assert list(harness.cloud.kubernetes.associations.values()) == [association]


def test_a_plan_that_failed_half_way_is_made_by_the_next_try(row: Row) -> None:
    for fault in (
        server_error("CreatePodIdentityAssociation", after_effect=True),
        server_error("CreateServiceAccount", 40),
        server_error("PutObject", after_effect=True),
    ):
        with row(fault.operation, clusters=True) as harness:
            harness.cloud.calls.inject(fault)
            with pytest.raises((ClientError, ClusterUnavailableError)):
                plan(harness)
            harness.cloud.calls.reset()
            plan(harness)
            assert len(harness.cloud.kubernetes.associations) == 1


def test_an_association_of_another_role_is_replaced(harness: ControlHarness) -> None:
    harness.cloud.calls.inject(Fault("PutObject", AwsError("InternalFailure", "", 500)))
    with pytest.raises(ClientError):
        plan(harness)
    [association] = harness.cloud.kubernetes.associations.values()
    association.role = "arn:aws:iam::123456789012:role/former"
    plan(harness)
    [association] = harness.cloud.kubernetes.associations.values()
    assert association.role == POD_ROLE


def test_an_association_of_another_owner_is_left_and_named(harness: ControlHarness) -> None:
    request = {"clusterName": "eks-one", "namespace": "team-a", "serviceAccount": "muster-one", "roleArn": POD_ROLE}
    harness.cloud.client("eks").create_pod_identity_association(**request)
    with pytest.raises(SpecError, match="is not Muster's"):
        try_to_plan(harness)
    [association] = harness.cloud.kubernetes.associations.values()
    assert association.tags == {}


def test_a_cluster_that_the_stack_does_not_have_is_named_with_what_is_known(harness: ControlHarness) -> None:
    words = refusal(harness, hyperpod={"cluster": "unknown"})
    assert "'unknown'" in words
    assert "hyper" in words
    words = refusal(harness, hyperpod={"cluster": "hyper", "namespace": "team-x"})
    assert "'team-x'" in words
    assert "team-a, team-b" in words
    # No job of a cluster can have such a name.
    assert "lower-case" in refusal(harness, "Upper")


def test_a_cluster_without_the_operator_a_namespace_or_a_right_is_named(harness: ControlHarness) -> None:
    harness.cluster.has_operator = False
    assert "HyperPod training operator" in refusal(harness)
    harness.cluster.has_operator = True
    harness.cloud.calls.inject(Fault("ListJobs", AwsError("Forbidden", "cannot list resource", 403)))
    assert "hyper, namespace team-a refuses the stack: cannot list resource" in refusal(harness)
    harness.cloud.calls.inject(Fault("ListJobs", AwsError("Unauthorized", "Unauthorized", 401), count=None))
    assert "hyper, namespace team-a refuses the stack: 401 Unauthorized; deploy the stack again" in refusal(harness)
    harness.cloud.calls.reset()
    harness.cluster.namespaces.remove("team-a")
    with pytest.raises(SpecError, match="hyper has no namespace team-a"):
        try_to_plan(harness)


def test_a_continuation_that_a_cluster_refuses_uses_up_no_run(row: Row) -> None:
    refused = Fault("ListJobs", AwsError("Unauthorized", "Unauthorized", 401), count=40)
    for fault, error in ((refused, SpecError), (server_error("ListJobs", 40), ClusterUnavailableError)):
        with row(error.__name__, clusters=True) as harness:
            plan(harness, "first")
            finished(harness, "first")
            harness.cloud.calls.inject(fault)
            with pytest.raises(error):
                plan(harness, "second", resume_from="first")
            assert "continued_by.json" not in harness.keys("control/first/")
            harness.cloud.calls.reset()
            assert plan(harness, "third", resume_from="first").lineage is not None
            prepared = dict(harness.cloud.kubernetes.associations)
            with pytest.raises(SpecError, match="already continued by third"):
                plan(harness, "fourth", resume_from="first")
            assert harness.cloud.kubernetes.associations == prepared, "refused before a cluster is asked"


def test_a_cluster_that_is_gone_or_private_is_named(row: Row) -> None:
    with row("gone", clusters=True) as harness:
        harness.cloud.kubernetes.delete("eks-one")
        with pytest.raises(SpecError, match=r"EKS cluster eks-one .* hyper"):
            try_to_plan(harness)
    with row("private", clusters=True) as harness:
        harness.cloud.kubernetes.public = False
        harness.cloud.kubernetes.gone.add("https://eks-one.eks.example.com")
        with pytest.raises(ClusterUnavailableError, match="ACTIVE, whose endpoint only its VPC reaches"):
            try_to_plan(harness)


def test_an_account_of_the_users_own_gets_nothing(harness: ControlHarness) -> None:
    allow(harness, service_accounts=("mine",))
    plan(harness, hyperpod={"cluster": "hyper", "service_account": "mine"})
    assert (harness.cloud.kubernetes.associations, harness.cluster.objects) == ({}, {})
    # Replicas in two namespaces have an account in each.
    other = {"hyperpod": {"cluster": "hyper", "namespace": "team-b"}}
    plan(harness, "two", replicas=2, overrides={"1": other})
    found = {one.namespace for one in harness.cloud.kubernetes.associations.values()}
    assert found == {"team-a", "team-b"}


@pytest.mark.parametrize("account", ["muster-victim", "muster-", "default", "admin"])
def test_a_service_account_that_the_settings_do_not_list_is_refused(harness: ControlHarness, account: str) -> None:
    """The account of a run has the rights of its pods; another one what the cluster's administrators gave it."""
    allow(harness, service_accounts=("mine", "muster-victim"))
    words = refusal(harness, hyperpod={"cluster": "hyper", "service_account": account})
    assert f"hyperpod.service_account: found '{account}'" in words


@pytest.mark.parametrize("path", ["/", "/var/lib/kubelet", "/mnt", "/mnt/data/deeper", "/mnt/data2", "//mnt/data/x"])
def test_a_path_of_the_nodes_that_the_settings_do_not_list_is_refused(harness: ControlHarness, path: str) -> None:
    allow(harness, host_paths=("/mnt/data/",))
    listed, asked = (
        {"name": name, "mount_path": f"/{name}", "host_path": at} for name, at in (("a", "/mnt/data"), ("b", path))
    )
    plan(harness, "listed", hyperpod={"cluster": "hyper", "volumes": [listed]})
    harness.cloud.kubernetes.associations.clear()
    harness.cluster.objects.clear()
    words = refusal(harness, hyperpod={"cluster": "hyper", "volumes": [listed, asked]})
    assert f"hyperpod.volumes.1.host_path: found '{path}'" in words


DIGEST = "a" * 64
HOSTILE = (
    *("*.tar.gz", "output/*.tar.gz", "output/victim/x.tar.gz", "source/*.tar.gz", "source/?.tar.gz", "source/x.tar.gz"),
    *(f"source/{DIGEST}/../../output/x.tar.gz", f"source/{DIGEST}.tar.gz.tar.gz", f"source/{'?' * 64}.tar.gz"),
    *(f"source/{DIGEST.upper()}.tar.gz", "source/${aws:PrincipalTag/x}.tar.gz", f"/source/{DIGEST}.tar.gz"),
)


@pytest.mark.parametrize("key", HOSTILE)
def test_nothing_of_a_spec_is_a_pattern_in_the_rights_of_its_pods(harness: ControlHarness, key: str) -> None:
    uri = f"s3://bucket/{key}"
    harness.plane.store.create(key, b"archive")
    assert "source_dir: found" in refusal(harness, source_dir=uri)
    if set("*?$") & set(key):
        made = plan(harness)
        planted = made.model_copy(update={"spec": made.spec.model_copy(update={"source_dir": uri})})
        with pytest.raises(SpecError, match="would be a pattern"):
            session_policy(planted)


def test_rights_stay_while_a_job_is_still_ending(harness: ControlHarness) -> None:
    made = plan(harness)
    run = harness.plane.runs.require(RUN)
    harness.arm()
    harness.cluster.run(harness.job())
    run.replica(0).jobs.stop(harness.job())
    with pytest.raises(StillRunningError, match="1 jobs of one"):
        remove_rights(harness, run)
    assert len(harness.cloud.kubernetes.associations) == 1
    harness.cloud.clock.advance(5)
    remove_rights(harness, run)
    remove_rights(harness, run)
    assert harness.cloud.kubernetes.associations == {}
    assert made.run == RUN


def test_the_sweep_takes_away_what_a_plan_left_that_was_never_written(harness: ControlHarness) -> None:
    harness.cloud.calls.inject(Fault("PutObject", AwsError("InternalFailure", "", 500), count=None))
    with pytest.raises(ClientError):
        plan(harness)
    harness.cloud.calls.reset()
    harness.cloud.workflow.fail(RUN, "Muster.X")
    harness.cloud.clock.advance(SLOW)
    assert sweep(harness.plane, harness.executions, SweepRequest(), budget()).errors == ()
    assert harness.cloud.kubernetes.associations == {}
    assert harness.cluster.objects == {}


def test_the_sweep_leaves_running_runs_young_ones_and_other_stacks_alone(harness: ControlHarness) -> None:
    plan(harness)
    eks = harness.cloud.client("eks")
    base = {"clusterName": "eks-one", "namespace": "team-a", "roleArn": POD_ROLE}
    eks.create_pod_identity_association(
        **base, serviceAccount="muster-other", tags={"muster:run": "other", "muster:stack": "prod"}
    )
    eks.create_pod_identity_association(**base, serviceAccount="muster-mine")
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "muster-other"}}
    harness.cluster.answer("POST", "/api/v1/namespaces/team-a/serviceaccounts", json.dumps(account).encode())
    harness.cloud.clock.advance(SLOW)
    eks.create_pod_identity_association(
        **base, serviceAccount="muster-young", tags={"muster:run": "young", "muster:stack": "muster"}
    )
    harness.cloud.calls.reset()
    sweep(harness.plane, harness.executions, SweepRequest(), budget())
    assert harness.cloud.calls.counts()["GetServiceAccount"] == 0, "nothing of theirs is looked at"
    kept = {one.account for one in harness.cloud.kubernetes.associations.values()}
    assert kept == {"muster-one", "muster-other", "muster-mine", "muster-young"}
    assert ("serviceaccounts", "team-a", "muster-other") in harness.cluster.objects


def test_the_sweep_leaves_an_account_that_is_not_musters(harness: ControlHarness) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": f"muster-{RUN}"}}
    harness.cluster.answer("POST", "/api/v1/namespaces/team-a/serviceaccounts", json.dumps(account).encode())
    harness.executions.start(RUN, "{}")
    with pytest.raises(SpecError, match="is not Muster's"):
        plan(harness)
    harness.cloud.workflow.fail(RUN, "Muster.X")
    harness.cloud.clock.advance(SLOW)
    assert sweep(harness.plane, harness.executions, SweepRequest(), budget()).errors == ()
    assert harness.cloud.kubernetes.associations == {}
    assert list(harness.cluster.objects) == [("serviceaccounts", "team-a", f"muster-{RUN}")]


def test_an_association_that_was_given_to_others_meanwhile_stays(harness: ControlHarness) -> None:
    plan(harness)
    [association] = harness.cloud.kubernetes.associations.values()
    association.tags = {"muster:run": RUN, "muster:stack": "prod"}
    remove_rights(harness, harness.plane.runs.require(RUN))
    assert list(harness.cloud.kubernetes.associations.values()) == [association]


# --- the policy -----------------------------------------------------------------------------------


def statements(made: Plan) -> list[dict[str, Any]]:
    return list(json.loads(session_policy(made))["Statement"])


def test_the_policy_names_the_run_and_its_lineage_and_no_other_part_of_the_bucket(harness: ControlHarness) -> None:
    made = plan(harness)
    resources = [
        resource
        for statement in statements(made)
        for resource in statement.get("Resource", [])
        if isinstance(statement.get("Resource"), list)
    ]
    prefixes = {resource.removeprefix("arn:aws:s3:::bucket/") for resource in resources}
    assert prefixes == {*("rendezvous/one/*", "checkpoints/one/*", "output/one/*", "runs/one/*", "notices/one/*")}
    [outside] = [statement for statement in statements(made) if "NotResource" in statement]
    assert outside["NotResource"] == ["arn:aws:s3:::bucket", "arn:aws:s3:::bucket/*"]
    [listing] = [one for one in statements(made) if one["Action"] == "s3:ListBucket"]
    # A program that could list notices or documents of the stack would see the names of its other runs.
    assert listing["Condition"]["StringLike"]["s3:prefix"] == ["rendezvous/one/*", "checkpoints/one/*", "output/one/*"]


def leaves(part: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where the texts of a document are."""
    inner = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in inner:
        yield from [(*path, key)] if isinstance(value, str) else leaves(value, (*path, key))


def patterns(policy: str) -> list[str]:
    """The resources and prefixes of a policy that are patterns before their ends."""
    made = json.loads(policy)["Statement"]
    listed = [prefix for one in made for prefix in one.get("Condition", {}).get("StringLike", {}).get("s3:prefix", [])]
    named = [one["Resource"] for one in made if "Resource" in one]
    resources = [one for item in named for one in ([item] if isinstance(item, str) else item)]
    return [one for one in (*resources, *listed) if set("*?$") & set(one.removesuffix("*"))]


def test_no_text_of_a_plan_is_a_pattern_in_the_rights_of_its_pods(harness: ControlHarness) -> None:
    """Whatever the checks of the plan say: each text is replaced in a plan that is sound."""
    made = plan(harness, environment={"A": "b"}, image="image:1")
    sound = json.loads(made.to_json())
    model = {"run": "first", "s3": "s3://bucket/output/first/model/"}
    sound["spec"] |= {"source_dir": f"s3://bucket/source/{DIGEST}.tar.gz", "model": model}
    sound["lineage"] = {"parent": "one", "root": "one", "generation": 1, "attempts_before": 0}
    built = 0
    # The stack's own names come from its settings, which refuse patterns themselves.
    for path in [*leaves(sound["spec"], ("spec",)), ("run",), ("lineage", "root")]:
        for mark in ("", "*", "?", "${aws:PrincipalTag/x}", "/../*", "s3://bucket/*", "s3://bucket/output/*/"):
            planted = place = copy.deepcopy(sound)
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = mark if mark.startswith("s3:") else f"{place[path[-1]]}{mark}"
            try:
                policy = session_policy(Plan.from_json(json.dumps(planted).encode(), "plan"))
            except MusterError:
                assert mark, path
                continue
            built += 1
            assert patterns(policy) == [], (path, mark)
    assert built > 20


def test_the_longest_names_fit_into_the_policy(harness: ControlHarness) -> None:
    made = plan(harness)
    digest = "f" * 64
    run, bucket = "r" * 37, "b" * 63
    place = made.place.model_copy(update={"bucket": bucket, "package_uri": f"s3://{bucket}/packages/{digest}.zip"})
    spec = made.spec.model_copy(update={"source_dir": f"s3://{bucket}/source/{digest}.tar.gz"})
    arn = f"arn:aws-us-gov:states:us-gov-west-1:123456789012:execution:m:{run}"
    longest = made.model_copy(update={"run": run, "place": place, "spec": spec, "execution_arn": arn})
    assert len(session_policy(longest)) <= POLICY_CHARACTERS_MAX


def test_a_policy_that_is_too_long_is_refused_before_anything_is_created(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.options.hyperpod.control.run_identity.POLICY_CHARACTERS_MAX", 100)
    assert "session policy" in refusal(harness)
