"""EKS of the embedded cloud: who may associate what with pods, and what a template says of access entries."""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from muster.local import LocalCloud
from tests.plugins.cluster_stack import CLUSTER
from tests.support.workshop import Workshop

EKS, NAMESPACE = CLUSTER.eks_cluster, CLUSTER.namespace
VERSION = "2012-10-17"
TO_PODS = {"Effect": "Allow", "Principal": {"Service": "pods.eks.amazonaws.com"}, "Action": "sts:AssumeRole"}
EVERYTHING_OF_S3 = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}


@pytest.fixture(scope="module")
def workshop(cluster_cloud: LocalCloud) -> Workshop:
    return Workshop(cluster_cloud)


@pytest.fixture(scope="module")
def eks(cluster_cloud: LocalCloud) -> Any:
    return cluster_cloud.client("eks")


@pytest.fixture(scope="module")
def pod_role(workshop: Workshop) -> str:
    """A role that EKS may give to pods."""
    return workshop.make_role([EVERYTHING_OF_S3], {**TO_PODS, "Action": ["sts:AssumeRole", "sts:TagSession"]})


@pytest.fixture(scope="module")
def principal(workshop: Workshop, cluster_cloud: LocalCloud) -> str:
    """A role that may have an access entry."""
    root = {"AWS": f"arn:aws:iam::{cluster_cloud.state.account_id}:root"}
    trust = {"Effect": "Allow", "Principal": root, "Action": "sts:AssumeRole"}
    return workshop.make_role([{"Effect": "Allow", "Action": "eks:*", "Resource": "*"}], trust)


def allow(action: str, resource: str, **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


def association(account: str, role_arn: str, **further: Any) -> dict[str, Any]:
    return {
        "clusterName": EKS,
        "namespace": NAMESPACE,
        "serviceAccount": account,
        "roleArn": role_arn,
        "disableSessionTags": True,
        **further,
    }


def code_of(call: Any, **arguments: Any) -> str:
    try:
        call(**arguments)
    except ClientError as error:
        return error.response["Error"]["Code"]
    return "done"


def test_a_role_is_given_to_pods_by_those_who_may_pass_it(workshop: Workshop, pod_role: str) -> None:
    create = allow("eks:CreatePodIdentityAssociation", f"*cluster/{EKS}")
    look = allow("iam:GetRole", pod_role)
    to_pods = {"StringEquals": {"iam:PassedToService": "pods.eks.amazonaws.com"}}
    give = allow("iam:PassRole", pod_role, Condition=to_pods)
    asked = association(workshop.name("passed"), pod_role)
    for rights in ([look, give], [create, look], [create, give]):
        eks = workshop.client_as("eks", rights)
        assert code_of(eks.create_pod_identity_association, **asked) == "AccessDeniedException", rights
    eks = workshop.client_as("eks", [create, look, give])
    tagged = {**asked, "tags": {"muster:run": "one"}}
    assert code_of(eks.create_pod_identity_association, **tagged) == "AccessDeniedException"
    assert code_of(eks.create_pod_identity_association, **asked) == "done"


def test_rights_to_an_association_are_rights_to_its_arn(workshop: Workshop, eks: Any, pod_role: str) -> None:
    made = eks.create_pod_identity_association(**association(workshop.name("owned"), pod_role))["association"]
    one = {"clusterName": EKS, "associationId": made["associationId"]}
    of_cluster = workshop.client_as("eks", [allow("eks:*", f"arn:aws:eks:*:*:cluster/{EKS}")])
    assert code_of(of_cluster.list_pod_identity_associations, clusterName=EKS) == "done"
    assert code_of(of_cluster.delete_pod_identity_association, **one) == "AccessDeniedException"
    of_associations = workshop.client_as("eks", [allow("eks:*", f"arn:aws:eks:*:*:podidentityassociation/{EKS}/*")])
    assert code_of(of_associations.list_pod_identity_associations, clusterName=EKS) == "AccessDeniedException"
    assert code_of(of_associations.delete_pod_identity_association, **one) == "done"


def test_an_association_that_eks_refuses(workshop: Workshop, eks: Any, pod_role: str) -> None:
    untagged = workshop.make_role([EVERYTHING_OF_S3], TO_PODS)
    nobody = pod_role.rpartition("/")[0] + "/none"
    long = json.dumps({"Version": VERSION, "Statement": [{**EVERYTHING_OF_S3, "Resource": "*" * 2048}]})
    for asked in (
        association("bad", untagged),
        association("bad", nobody),
        association("bad", pod_role, policy="{"),
        association("bad", pod_role, policy=long),
        association("Bad_Name", pod_role),
    ):
        assert code_of(eks.create_pod_identity_association, **asked) == "InvalidParameterException", asked
    tagged = association("bad", pod_role, disableSessionTags=False)
    assert code_of(eks.create_pod_identity_association, **tagged) == "NotImplemented"
    asked = association(workshop.name("taken"), pod_role)
    made = eks.create_pod_identity_association(**asked)["association"]
    assert code_of(eks.create_pod_identity_association, **asked) == "ResourceInUseException"
    one = {"clusterName": EKS, "associationId": made["associationId"]}
    assert code_of(eks.update_pod_identity_association, **one, roleArn=pod_role) == "NotImplemented"


def test_a_template_has_access_entries(workshop: Workshop, eks: Any, principal: str) -> None:
    formation = workshop.cloud.client("cloudformation")
    name, one = {"StackName": workshop.name("entries")}, {"clusterName": EKS, "principalArn": principal}

    def template(**properties: Any) -> str:
        entry = {
            "Type": "AWS::EKS::AccessEntry",
            "Properties": {"ClusterName": EKS, "PrincipalArn": principal, **properties},
        }
        output = {"Value": {"Fn::GetAtt": ["Entry", "AccessEntryArn"]}}
        return json.dumps({"Resources": {"Entry": entry}, "Outputs": {"Arn": output}})

    def reached(state: str) -> None:
        formation.get_waiter(state).wait(**name, WaiterConfig={"Delay": 1})

    def policies() -> list[dict[str, Any]]:
        return list(eks.list_associated_access_policies(**one)["associatedAccessPolicies"])

    view = {
        "PolicyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy",
        "AccessScope": {"Type": "namespace", "Namespaces": [NAMESPACE]},
    }
    formation.create_stack(**name, TemplateBody=template(KubernetesGroups=["one"], AccessPolicies=[view]))
    reached("stack_create_complete")
    entry = eks.describe_access_entry(**one)["accessEntry"]
    assert entry["kubernetesGroups"] == ["one"]
    named = {"clusterName": EKS, "principalArn": principal, "username": "one"}
    assert code_of(eks.create_access_entry, **named) == "NotImplemented"
    outputs = formation.describe_stacks(**name)["Stacks"][0]["Outputs"]
    assert outputs[0]["OutputValue"] == entry["accessEntryArn"]
    assert [found["accessScope"] for found in policies()] == [{"type": "namespace", "namespaces": [NAMESPACE]}]
    formation.update_stack(**name, TemplateBody=template(KubernetesGroups=["two"]))
    reached("stack_update_complete")
    assert eks.describe_access_entry(**one)["accessEntry"]["kubernetesGroups"] == ["two"]
    assert policies() == []
    formation.delete_stack(**name)
    reached("stack_delete_complete")
    assert code_of(eks.describe_access_entry, **one) == "ResourceNotFoundException"
