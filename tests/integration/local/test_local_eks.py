"""EKS of the embedded cloud: who may associate what with pods, what pods may do then, and what a template says."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
import urllib3
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from muster.local import LocalCloud, Settings
from muster.local.faults import KubernetesError
from muster.local.hyperpod.cluster_settings import ClusterSettings
from tests.support.waiting import wait_until

SETTINGS = ClusterSettings(nodes=1)
EKS, NAMESPACE = SETTINGS.eks_cluster, SETTINGS.namespaces[0]
VERSION = "2012-10-17"
TO_PODS = {"Service": "pods.eks.amazonaws.com"}
JOBS = f"/apis/sagemaker.amazonaws.com/v1/namespaces/{NAMESPACE}/hyperpodpytorchjobs"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    settings = Settings(port=0, hyperpod=SETTINGS, end_with_parent=True)
    with LocalCloud.start(tmp_path_factory.mktemp("cloud"), settings) as running:
        yield running


@pytest.fixture(scope="module")
def pod_role(cloud: LocalCloud) -> str:
    """A role that EKS may give to pods, with all rights to one bucket."""
    cloud.client("s3").create_bucket(Bucket="pods")
    statement = {"Effect": "Allow", "Action": "s3:*", "Resource": ["arn:aws:s3:::pods", "arn:aws:s3:::pods/*"]}
    return role(cloud, "pods", TO_PODS, [statement], actions=["sts:AssumeRole", "sts:TagSession"])


def role(
    cloud: LocalCloud, name: str, who: dict[str, str], rights: list[dict[str, Any]], actions: list[str] | None = None
) -> str:
    trust = {"Effect": "Allow", "Principal": who, "Action": actions or ["sts:AssumeRole"]}
    policy = json.dumps({"Version": VERSION, "Statement": [trust]})
    made = cloud.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=policy)["Role"]["Arn"]
    document = json.dumps({"Version": VERSION, "Statement": rights})
    cloud.client("iam").put_role_policy(RoleName=name, PolicyName="rights", PolicyDocument=document)
    return str(made)


def session(cloud: LocalCloud, name: str, rights: list[dict[str, Any]]) -> boto3.Session:
    """A session of a new role that root may assume."""
    root = {"AWS": f"arn:aws:iam::{cloud.state.account_id}:root"}
    arn = role(cloud, name, root, rights)
    keys = cloud.client("sts").assume_role(RoleArn=arn, RoleSessionName="test")["Credentials"]
    return boto3.Session(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"], cloud.state.region)


def association(account: str, role_arn: str, **further: Any) -> dict[str, Any]:
    return {"clusterName": EKS, "namespace": NAMESPACE, "serviceAccount": account, "roleArn": role_arn, **further}


def code_of(call: Any, **arguments: Any) -> str:
    try:
        call(**arguments)
    except ClientError as error:
        return error.response["Error"]["Code"]
    return "done"


def kubernetes(cloud: LocalCloud, method: str, path: str, document: Any = None) -> tuple[int, Any]:
    """A call of root."""
    cluster = cloud.client("eks").describe_cluster(name=EKS)["cluster"]
    url = f"https://sts.{cloud.state.region}.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15"
    signed = AWSRequest("GET", url, headers={"x-k8s-aws-id": EKS})
    keys = Credentials(cloud.state.access_key_id, cloud.state.secret_access_key)
    SigV4QueryAuth(keys, "sts", cloud.state.region, 60).add_auth(signed)
    token = "k8s-aws-v1." + base64.urlsafe_b64encode(str(signed.url).encode()).decode().rstrip("=")
    authority = base64.b64decode(cluster["certificateAuthority"]["data"]).decode()
    with urllib3.PoolManager(ca_cert_data=authority) as pool:
        body = None if document is None else json.dumps(document).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        answer = pool.request(method, cluster["endpoint"] + path, body=body, headers=headers, retries=False)
        return answer.status, json.loads(answer.data)


def test_a_role_is_given_to_pods_by_those_who_may_pass_it(cloud: LocalCloud, pod_role: str) -> None:
    create = {"Effect": "Allow", "Action": "eks:CreatePodIdentityAssociation", "Resource": f"*cluster/{EKS}"}
    look = {"Effect": "Allow", "Action": "iam:GetRole", "Resource": pod_role}
    condition = {"StringEquals": {"iam:PassedToService": "pods.eks.amazonaws.com"}}
    give = {"Effect": "Allow", "Action": "iam:PassRole", "Resource": pod_role, "Condition": condition}
    asked = association("passed", pod_role)
    options = cloud.client_options()
    for name, rights in (("nothing", [look, give]), ("create", [create, look]), ("unseen", [create, give])):
        eks = session(cloud, f"passes-{name}", rights).client("eks", **options)
        assert code_of(eks.create_pod_identity_association, **asked) == "AccessDeniedException"
    eks = session(cloud, "passes", [create, look, give]).client("eks", **options)
    tagged = {**asked, "tags": {"muster:run": "one"}}
    assert code_of(eks.create_pod_identity_association, **tagged) == "AccessDeniedException"
    assert code_of(eks.create_pod_identity_association, **asked) == "done"


def test_entries_and_associations_have_tags(cloud: LocalCloud, pod_role: str) -> None:
    eks = cloud.client("eks")
    made = eks.create_pod_identity_association(**association("tagged", pod_role, tags={"a": "b"}))["association"]
    eks.tag_resource(resourceArn=made["associationArn"], tags={"c": "d"})
    assert eks.list_tags_for_resource(resourceArn=made["associationArn"])["tags"] == {"a": "b", "c": "d"}
    entry = eks.create_access_entry(clusterName=EKS, principalArn=pod_role)["accessEntry"]["accessEntryArn"]
    eks.tag_resource(resourceArn=entry, tags={"e": "f"})
    assert eks.list_tags_for_resource(resourceArn=entry)["tags"] == {"e": "f"}
    none = f"{made['associationArn']}0"
    assert code_of(eks.tag_resource, resourceArn=none, tags={"a": "b"}) == "ResourceNotFoundException"


def test_rights_to_an_association_are_rights_to_its_arn(cloud: LocalCloud, pod_role: str) -> None:
    made = cloud.client("eks").create_pod_identity_association(**association("owned", pod_role))["association"]
    one = {"clusterName": EKS, "associationId": made["associationId"]}
    rights = [{"Effect": "Allow", "Action": "eks:*", "Resource": f"arn:aws:eks:*:*:cluster/{EKS}"}]
    eks = session(cloud, "cluster-only", rights).client("eks", **cloud.client_options())
    assert code_of(eks.list_pod_identity_associations, clusterName=EKS) == "done"
    assert code_of(eks.delete_pod_identity_association, **one) == "AccessDeniedException"
    rights = [{"Effect": "Allow", "Action": "eks:*", "Resource": f"arn:aws:eks:*:*:podidentityassociation/{EKS}/*"}]
    eks = session(cloud, "associations-only", rights).client("eks", **cloud.client_options())
    assert code_of(eks.list_pod_identity_associations, clusterName=EKS) == "AccessDeniedException"
    assert code_of(eks.delete_pod_identity_association, **one) == "done"


def test_an_association_that_eks_refuses(cloud: LocalCloud, pod_role: str) -> None:
    eks = cloud.client("eks")
    plain = role(cloud, "untagged", TO_PODS, [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}])
    policy = json.dumps({"Version": VERSION, "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]})
    long = json.dumps(
        {"Version": VERSION, "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*" * 2048}]}
    )
    for asked in (
        association("bad", plain),
        association("bad", f"arn:aws:iam::{cloud.state.account_id}:role/none"),
        association("bad", pod_role, policy=policy),
        association("bad", pod_role, policy="{", disableSessionTags=True),
        association("bad", pod_role, policy=long, disableSessionTags=True),
        association("Bad_Name", pod_role),
    ):
        assert code_of(eks.create_pod_identity_association, **asked) == "InvalidParameterException"
    asked = association("repeated", pod_role, clientRequestToken="token-of-one-request")
    first = eks.create_pod_identity_association(**asked)["association"]
    assert eks.create_pod_identity_association(**asked)["association"]["associationId"] == first["associationId"]
    assert code_of(eks.create_pod_identity_association, **association("repeated", pod_role)) == "ResourceInUseException"


def test_the_session_policy_narrows_what_a_pod_may_do(cloud: LocalCloud, pod_role: str) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "narrow"}}
    assert kubernetes(cloud, "POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)[0] == 201
    narrow = {"Effect": "Allow", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::pods/mine/*"}
    policy = json.dumps({"Version": VERSION, "Statement": [narrow]})
    asked = association("narrow", pod_role, policy=policy, disableSessionTags=True)
    cloud.client("eks").create_pod_identity_association(**asked)
    code = (
        "import boto3\n"
        "s3, sts = boto3.client('s3'), boto3.client('sts')\n"
        "s3.put_object(Bucket='pods', Key='mine/who', Body=sts.get_caller_identity()['Arn'].encode())\n"
        "try:\n    s3.put_object(Bucket='pods', Key='other', Body=b'')\n"
        "except Exception as error:\n    s3.put_object(Bucket='pods', Key='mine/refused', Body=str(error).encode())\n"
    )
    container = {"name": "main", "image": "muster-local/python:1", "command": ["python", "-c", code]}
    spec = {"restartPolicy": "Never", "serviceAccountName": "narrow", "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "narrow"}, "spec": spec}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    assert kubernetes(cloud, "POST", path, pod)[0] == 201

    def has_ended() -> bool:
        return kubernetes(cloud, "GET", f"{path}/narrow")[1]["status"]["phase"] in ("Succeeded", "Failed")

    wait_until("the pod has ended", has_ended)
    s3 = cloud.client("s3")
    who = s3.get_object(Bucket="pods", Key="mine/who")["Body"].read().decode()
    assert f":assumed-role/pods/eks-{EKS}-narrow-" in who
    assert "AccessDenied" in s3.get_object(Bucket="pods", Key="mine/refused")["Body"].read().decode()


def test_a_template_has_access_entries(cloud: LocalCloud) -> None:
    root = {"AWS": f"arn:aws:iam::{cloud.state.account_id}:root"}
    principal = role(cloud, "templated", root, [{"Effect": "Allow", "Action": "eks:*", "Resource": "*"}])
    formation, eks = cloud.client("cloudformation"), cloud.client("eks")

    def template(**properties: Any) -> str:
        entry = {
            "Type": "AWS::EKS::AccessEntry",
            "Properties": {"ClusterName": EKS, "PrincipalArn": principal, **properties},
        }
        output = {"Value": {"Fn::GetAtt": ["Entry", "AccessEntryArn"]}}
        return json.dumps({"Resources": {"Entry": entry}, "Outputs": {"Arn": output}})

    view = {
        "PolicyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy",
        "AccessScope": {"Type": "namespace", "Namespaces": [NAMESPACE]},
    }
    name = {"StackName": "entries"}
    formation.create_stack(**name, TemplateBody=template(KubernetesGroups=["one"], AccessPolicies=[view]))
    formation.get_waiter("stack_create_complete").wait(**name, WaiterConfig={"Delay": 1})
    entry = eks.describe_access_entry(clusterName=EKS, principalArn=principal)["accessEntry"]
    assert entry["kubernetesGroups"] == ["one"]
    assert entry["username"].endswith(":assumed-role/templated/{{SessionName}}")
    outputs = formation.describe_stacks(**name)["Stacks"][0]["Outputs"]
    assert outputs[0]["OutputValue"] == entry["accessEntryArn"]
    found = eks.list_associated_access_policies(clusterName=EKS, principalArn=principal)["associatedAccessPolicies"]
    assert found[0]["accessScope"] == {"type": "namespace", "namespaces": [NAMESPACE]}
    formation.update_stack(**name, TemplateBody=template(KubernetesGroups=["two"]))
    formation.get_waiter("stack_update_complete").wait(**name, WaiterConfig={"Delay": 1})
    assert eks.describe_access_entry(clusterName=EKS, principalArn=principal)["accessEntry"]["kubernetesGroups"] == [
        "two"
    ]
    assert not eks.list_associated_access_policies(clusterName=EKS, principalArn=principal)["associatedAccessPolicies"]
    formation.delete_stack(**name)
    formation.get_waiter("stack_delete_complete").wait(**name, WaiterConfig={"Delay": 1})
    asked = {"clusterName": EKS, "principalArn": principal}
    assert code_of(eks.describe_access_entry, **asked) == "ResourceNotFoundException"


def test_entries_that_eks_refuses(cloud: LocalCloud) -> None:
    eks = cloud.client("eks")
    root = {"AWS": f"arn:aws:iam::{cloud.state.account_id}:root"}
    principal = role(cloud, "refused", root, [{"Effect": "Allow", "Action": "eks:*", "Resource": "*"}])
    for asked in (
        {"principalArn": f"arn:aws:iam::{cloud.state.account_id}:role/none"},
        {"principalArn": f"arn:aws:sts::{cloud.state.account_id}:assumed-role/refused/session"},
        {"principalArn": principal, "kubernetesGroups": ["system:masters"]},
        {"principalArn": principal, "username": "eks:me"},
    ):
        assert code_of(eks.create_access_entry, clusterName=EKS, **asked) == "InvalidParameterException"


def test_faults_and_counts_know_the_kubernetes_api(cloud: LocalCloud) -> None:
    fault = cloud.faults.add(KubernetesError(verb="list", resource="hyperpodpytorchjobs", code=429, retry_after=1))
    cloud.calls.reset()
    refused, document = kubernetes(cloud, "GET", JOBS)
    assert (refused, document["reason"]) == (429, "TooManyRequests")
    assert kubernetes(cloud, "GET", JOBS)[0] == 200
    assert fault.fired == 1
    counted = {
        (call.operation, call.caller): call.count for call in cloud.calls.report() if call.service == "kubernetes"
    }
    assert counted == {("list hyperpodpytorchjobs", "root"): 2}


def test_sagemaker_knows_the_cluster(cloud: LocalCloud) -> None:
    sagemaker = cloud.client("sagemaker")
    found = sagemaker.describe_cluster(ClusterName=SETTINGS.name)
    assert found["ClusterStatus"] == "InService"
    assert found["Orchestrator"]["Eks"]["ClusterArn"].endswith(f":cluster/{EKS}")
    nodes = sagemaker.list_cluster_nodes(ClusterName=found["ClusterArn"])["ClusterNodeSummaries"]
    assert [node["InstanceStatus"]["Status"] for node in nodes] == ["Running"]
    node = sagemaker.describe_cluster_node(ClusterName=SETTINGS.name, NodeId=nodes[0]["InstanceId"])["NodeDetails"]
    assert node["InstanceType"] == SETTINGS.node_type
    assert code_of(sagemaker.describe_cluster, ClusterName="none") == "ResourceNotFound"
    assert (
        code_of(sagemaker.describe_cluster_node, ClusterName=SETTINGS.name, NodeId="i-00000000") == "ResourceNotFound"
    )
    other = [{"Effect": "Allow", "Action": "eks:*", "Resource": "*"}]
    stranger = session(cloud, "no-cluster", other).client("sagemaker", **cloud.client_options())
    assert code_of(stranger.describe_cluster, ClusterName=SETTINGS.name) == "AccessDeniedException"
    assert [row["ClusterName"] for row in sagemaker.list_clusters()["ClusterSummaries"]] == [SETTINGS.name]
