"""The cluster in the embedded cloud: SageMaker's calls, events on the bus, logs, rights of pods, its end."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from muster.contract.training.clusters import ENV_LOCAL_CLUSTERS, Clusters
from muster.local import LocalCloud
from muster.local.faults import KubernetesError, LostNode, LostNotice
from tests.plugins.cluster_stack import CLUSTER
from tests.support.hyperpod.cluster import FAST, PROGRAMS
from tests.support.hyperpod.root_api import RootApi
from tests.support.waiting import wait_until
from tests.support.workshop import Workshop, fast_settings

EKS, NAMESPACE = CLUSTER.eks_cluster, CLUSTER.namespace
STEPS = ["hyperpodrun", "--nnodes=1", "steps.py", "60"]


@pytest.fixture(scope="module")
def workshop(cluster_cloud: LocalCloud) -> Workshop:
    return Workshop(cluster_cloud)


def code_of(call: Any, **arguments: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    return caught.value.response["Error"]["Code"]


def test_shells_deployments_and_sagemaker_know_the_cluster(cluster_cloud: LocalCloud, workshop: Workshop) -> None:
    known = Clusters.model_validate_json(cluster_cloud.environment()[ENV_LOCAL_CLUSTERS])
    assert known.clusters[0].name == CLUSTER.name
    sagemaker, one = workshop.sagemaker, {"ClusterName": CLUSTER.name}
    found = sagemaker.describe_cluster(**one)
    assert found["ClusterStatus"] == "InService"
    assert found["Orchestrator"]["Eks"]["ClusterArn"].endswith(f":cluster/{EKS}")
    assert [row["ClusterName"] for row in sagemaker.list_clusters()["ClusterSummaries"]] == [CLUSTER.name]
    [group] = found["InstanceGroups"]
    assert (group["InstanceType"], group["CurrentCount"]) == (CLUSTER.node_type, CLUSTER.nodes)
    assert code_of(sagemaker.describe_cluster, ClusterName="none") == "ResourceNotFound"
    stranger = workshop.client_as("sagemaker", [{"Effect": "Allow", "Action": "eks:*", "Resource": "*"}])
    assert code_of(stranger.describe_cluster, **one) == "AccessDeniedException"


# Says who it is, what it may do and what not.
READER = """
import boto3, time
s3 = boto3.client("s3")
print("who", boto3.client("sts").get_caller_identity()["Arn"])
print("read", s3.get_object(Bucket="{bucket}", Key="open/a")["Body"].read())
try:
    s3.put_object(Bucket="{bucket}", Key="open/b", Body=b"")
except Exception as error:
    print("refused", error, flush=True)
time.sleep(60)
"""
STRANGER = "import boto3; boto3.client('sts', region_name='us-east-1').get_caller_identity()"


def test_a_pod_has_the_rights_of_its_service_accounts_association_and_no_others(
    cluster_cloud: LocalCloud, workshop: Workshop, root_api: RootApi
) -> None:
    name, bucket = workshop.name("reader"), workshop.bucket
    workshop.s3.put_object(Bucket=bucket, Key="open/a", Body=b"it")
    to_pods = {
        "Effect": "Allow",
        "Principal": {"Service": "pods.eks.amazonaws.com"},
        "Action": ["sts:AssumeRole", "sts:TagSession"],
    }
    role = workshop.make_role([{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}], to_pods)
    narrow = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{bucket}/open/*"}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    assert root_api.ask("POST", f"{root_api.core}/serviceaccounts", account)[0] == 201
    cluster_cloud.client("eks").create_pod_identity_association(
        clusterName=EKS,
        namespace=NAMESPACE,
        serviceAccount=name,
        roleArn=role,
        policy=json.dumps({"Version": "2012-10-17", "Statement": [narrow]}),
        disableSessionTags=True,
    )
    root_api.create_job(name, ["python", "-c", READER.format(bucket=bucket)], serviceAccountName=name)
    log = wait_until("both calls", lambda: found if "refused" in (found := root_api.log()) else "")
    assert f":assumed-role/{role.rpartition('/')[2]}/eks-{EKS}-{name}-" in log
    assert "read b'it'" in log
    assert "AccessDenied" in log
    root_api.delete_job(name)

    stranger = workshop.name("stranger")
    root_api.create_job(stranger, ["sh", "-c", f'python -c "{STRANGER}" 2>&1; sleep 60'])
    wait_until("the refusal", lambda: "Unable to locate credentials" in root_api.log())
    root_api.delete_job(stranger)


class Queue:
    """A queue to which services may send."""

    def __init__(self, workshop: Workshop, service: str) -> None:
        self._sqs, name = workshop.cloud.client("sqs"), workshop.name("queue")
        self.arn = f"arn:aws:sqs:us-east-1:{workshop.cloud.state.account_id}:{name}"
        allow = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sqs:SendMessage"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [{**allow, "Resource": self.arn}]})
        self._url = self._sqs.create_queue(QueueName=name, Attributes={"Policy": policy})["QueueUrl"]

    def received(self) -> list[Any]:
        answer = self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10)
        return [json.loads(message["Body"]) for message in answer.get("Messages", [])]


def test_the_events_of_a_lost_node_reach_a_rule_on_the_bus(
    cluster_cloud: LocalCloud, workshop: Workshop, root_api: RootApi
) -> None:
    queue, events, name = Queue(workshop, "events.amazonaws.com"), cluster_cloud.client("events"), workshop.name()
    pattern = {"source": ["aws.sagemaker"], "detail-type": ["SageMaker HyperPod Cluster Node Health Event"]}
    events.put_rule(Name=name, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": queue.arn}])
    root_api.create_job(name, STEPS)
    cluster_cloud.faults.add(LostNode(job=name)).wait()
    event = wait_until("the event", queue.received)[0]
    assert event["detail"]["ClusterName"] == CLUSTER.name
    assert event["detail"]["HealthSummary"]["HealthStatus"] == "Unhealthy"
    assert event["resources"][0] == event["detail"]["ClusterArn"]
    events.remove_targets(Rule=name, Ids=["queue"])
    root_api.delete_job(name)


def test_the_event_about_a_notice_can_be_lost(cluster_cloud: LocalCloud, workshop: Workshop) -> None:
    bucket, queue = workshop.name("notices"), Queue(workshop, "s3.amazonaws.com")
    workshop.s3.create_bucket(Bucket=bucket)
    target = {"QueueArn": queue.arn, "Events": ["s3:ObjectCreated:*"]}
    workshop.s3.put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration={"QueueConfigurations": [target]}
    )
    fault = cluster_cloud.faults.add(LostNotice(key=f"notices/{bucket}/end-*"))
    notices = [f"notices/{bucket}/end-r{rank}-a1-x.json" for rank in range(2)]
    for key in notices:
        workshop.s3.put_object(Bucket=bucket, Key=key, Body=b"{}")
    assert fault.fired == 1

    def keys() -> list[str]:
        records = [record for message in queue.received() for record in message.get("Records", [])]
        return [record["s3"]["object"]["key"] for record in records]

    assert wait_until("the other event", keys) == notices[1:]
    assert workshop.s3.head_object(Bucket=bucket, Key=notices[0])


def test_faults_and_counts_know_the_kubernetes_api(cluster_cloud: LocalCloud, root_api: RootApi) -> None:
    name = "of-this-test"
    asked = {"verb": "get", "resource": "hyperpodpytorchjobs", "name": name}
    fault = cluster_cloud.faults.add(KubernetesError(**asked, code=429, retry_after=1))
    cluster_cloud.calls.reset()
    refused, document = root_api.ask("GET", f"{root_api.jobs}/{name}")
    assert (refused, document["reason"]) == (429, "TooManyRequests")
    assert root_api.ask("GET", f"{root_api.jobs}/{name}")[0] == 404
    assert fault.fired == 1
    counted = [(call.operation, call.count) for call in cluster_cloud.calls.report() if call.caller == "root"]
    assert counted == [("get hyperpodpytorchjobs", 2)]


def test_no_process_of_a_pod_outlives_the_cloud(tmp_path: Path) -> None:
    with LocalCloud.start(tmp_path / "cloud", fast_settings(services={"hyperpod": FAST}, code=(PROGRAMS,))) as own:
        api = RootApi(own, FAST)
        api.create_job("left", ["sh", "-c", "echo pid $$$$; trap '' TERM; while true; do sleep 1; done"])
        pid = int(wait_until("the process", lambda: api.log().partition("pid ")[2].strip() or None))
        assert own.cluster_jobs() == [f"{FAST.namespace}/left"]
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
