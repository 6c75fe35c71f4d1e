"""The cluster in the embedded cloud: SageMaker's calls, events on the bus, logs, rights of pods, its end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3

from muster.contract.hyperpod.clusters import ENV_LOCAL_CLUSTERS, Clusters
from muster.contract.hyperpod.identity import API_VERSION, KIND, PLURAL
from muster.local import LocalCloud
from muster.local.faults import LostNode, LostNotice
from muster.local.hyperpod.cluster_calls import log_group
from tests.support.hyperpod.cluster import FAST, NAMESPACE, PROGRAMS
from tests.support.hyperpod.tokens import eks_token
from tests.support.waiting import wait_until
from tests.support.workshop import fast_settings

JOBS = f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/{PLURAL}"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    """A cloud with a cluster."""
    settings = fast_settings(hyperpod=FAST, code=(PROGRAMS,))
    with LocalCloud.start(tmp_path_factory.mktemp("cloud"), settings) as running:
        yield running


class Api:
    """The cluster's API as root."""

    def __init__(self, cloud: LocalCloud) -> None:
        self._cluster = cloud.client("eks").describe_cluster(name=FAST.eks_cluster)["cluster"]
        self._token = eks_token(FAST.eks_cluster, cloud.state.region, cloud.state)
        self._pool = urllib3.PoolManager(ca_certs=str(cloud.directory.scratch / "hyperpod" / "certificates" / "ca.pem"))

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body)
        response = self._pool.request(method, f"{self._cluster['endpoint']}{path}", body=content, headers=headers)
        found: dict[str, Any] = (
            json.loads(response.data) if response.data[:1] == b"{" else {"text": response.data.decode()}
        )
        return {"code": response.status, **found}

    def create(self, name: str, command: list[str], **spec: Any) -> None:
        container = {"name": "c", "image": "muster-local/python", "command": command}
        container["env"] = [{"name": "NNODES", "value": "1"}]  # type: ignore[assignment]  # a document
        template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 5, **spec}}
        document = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name},
            "spec": {
                "nprocPerNode": "1",
                "replicaSpecs": [{"name": "pod", "replicas": 1, "template": template}],
                "runPolicy": {"ttlSecondsAfterFinished": 3600, "cleanPodPolicy": "None"},
            },
        }
        assert self.ask("POST", JOBS, document)["code"] == 201

    def log(self, name: str) -> str:
        found = self.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}-pod-0/log")
        return str(found.get("text", ""))


@pytest.fixture(scope="module")
def api(cloud: LocalCloud) -> Api:
    """Its API."""
    return Api(cloud)


def test_a_shell_and_a_deployment_know_the_cluster(cloud: LocalCloud) -> None:
    known = Clusters.model_validate_json(cloud.environment()[ENV_LOCAL_CLUSTERS])
    assert known.clusters[0].name == FAST.name
    described = cloud.client("sagemaker").describe_cluster(ClusterName=FAST.name)
    assert described["Orchestrator"]["Eks"]["ClusterArn"].endswith(f"cluster/{FAST.eks_cluster}")


def test_lines_of_pods_are_in_the_clusters_log_group(cloud: LocalCloud, api: Api) -> None:
    api.create("shipped", ["sh", "-c", "echo a line that is shipped; sleep 60"])
    logs = cloud.client("logs")

    def found() -> list[dict[str, Any]]:
        try:
            answer = logs.filter_log_events(
                logGroupName=log_group(FAST.name), logStreamNamePrefix="SagemakerHyperPodTrainingJob"
            )
        except logs.exceptions.ResourceNotFoundException:
            return []
        return [event for event in answer["events"] if "a line that is shipped" in event["message"]]

    event = wait_until("the line", found)[0]
    assert event["logStreamName"].startswith("SagemakerHyperPodTrainingJob/workers/hyperpod-i-")
    assert "a line that is shipped" in api.log("shipped")
    api.ask("DELETE", f"{JOBS}/shipped")


def test_a_pod_has_the_rights_of_its_service_accounts_association_and_no_others(cloud: LocalCloud, api: Api) -> None:
    s3, iam, eks = cloud.client("s3"), cloud.client("iam"), cloud.client("eks")
    s3.create_bucket(Bucket="pods-data")
    s3.put_object(Bucket="pods-data", Key="open/a", Body=b"it")
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "pods.eks.amazonaws.com"},
                "Action": ["sts:AssumeRole", "sts:TagSession"],
            }
        ],
    }
    role = iam.create_role(RoleName="pods", AssumeRolePolicyDocument=json.dumps(trust))["Role"]["Arn"]
    rights = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    iam.put_role_policy(RoleName="pods", PolicyName="s3", PolicyDocument=json.dumps(rights))
    narrow = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::pods-data/open/*"}],
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}}
    assert api.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)["code"] == 201
    eks.create_pod_identity_association(
        clusterName=FAST.eks_cluster,
        namespace=NAMESPACE,
        serviceAccount="reader",
        roleArn=role,
        policy=json.dumps(narrow),
        disableSessionTags=True,
    )
    program = (
        "import boto3, time\n"
        "s3 = boto3.client('s3')\n"
        "print('read', s3.get_object(Bucket='pods-data', Key='open/a')['Body'].read(), flush=True)\n"
        "try:\n"
        "    s3.put_object(Bucket='pods-data', Key='open/b', Body=b'')\n"
        "except Exception as error:\n"
        "    print('refused', error, flush=True)\n"
        "time.sleep(60)\n"
    )
    api.create("reader", ["python", "-c", program], serviceAccountName="reader")
    log = wait_until("both calls", lambda: found if "refused" in (found := api.log("reader")) else "")
    assert "read b'it'" in log
    assert "AccessDenied" in log
    api.ask("DELETE", f"{JOBS}/reader")

    nothing = "import boto3; boto3.client('sts', region_name='us-east-1').get_caller_identity()"
    api.create("stranger", ["sh", "-c", f'python -c "{nothing}" 2>&1; sleep 60'])
    wait_until("the refusal", lambda: "Unable to locate credentials" in api.log("stranger"))
    api.ask("DELETE", f"{JOBS}/stranger")


def test_the_events_of_a_lost_node_reach_a_rule_on_the_bus(cloud: LocalCloud, api: Api) -> None:
    queue = cloud.client("sqs").create_queue(QueueName="node-events")["QueueUrl"]
    events = cloud.client("events")
    pattern = {"source": ["aws.sagemaker"], "detail-type": ["SageMaker HyperPod Cluster Node Health Event"]}
    events.put_rule(Name="node-events", EventPattern=json.dumps(pattern))
    arn = f"arn:aws:sqs:{cloud.state.region}:{cloud.state.account_id}:node-events"
    events.put_targets(Rule="node-events", Targets=[{"Id": "queue", "Arn": arn}])
    api.create("loses", ["hyperpodrun", "--nnodes=1", "steps.py", "60"])
    cloud.faults.add(LostNode(job="loses")).wait()

    def received() -> list[Any]:
        answer = cloud.client("sqs").receive_message(QueueUrl=queue)
        return [json.loads(message["Body"]) for message in answer.get("Messages", [])]

    event = wait_until("the event", received)[0]
    assert event["detail"]["ClusterName"] == FAST.name
    assert event["detail"]["HealthSummary"]["HealthStatus"] == "Unhealthy"
    assert event["resources"][0] == event["detail"]["ClusterArn"]
    api.ask("DELETE", f"{JOBS}/loses")


def test_the_number_of_nodes_can_be_changed(cloud: LocalCloud) -> None:
    sagemaker = cloud.client("sagemaker")
    role = f"arn:aws:iam::{cloud.state.account_id}:role/nodes"

    def scale(count: int) -> None:
        group = {"InstanceGroupName": "workers", "InstanceCount": count, "ExecutionRole": role}
        sagemaker.update_cluster(ClusterName=FAST.name, InstanceGroups=[group])

    def nodes() -> int:
        return len(sagemaker.list_cluster_nodes(ClusterName=FAST.name)["ClusterNodeSummaries"])

    scale(4)
    wait_until("the fourth node", lambda: nodes() == 4)
    scale(3)
    wait_until("three nodes", lambda: nodes() == 3)


def test_the_event_about_a_notice_can_be_lost(cloud: LocalCloud) -> None:
    s3, sqs = cloud.client("s3"), cloud.client("sqs")
    queue = sqs.create_queue(QueueName="notices")["QueueUrl"]
    arn = f"arn:aws:sqs:{cloud.state.region}:{cloud.state.account_id}:notices"
    allow = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "s3.amazonaws.com"},
                "Action": "sqs:SendMessage",
                "Resource": arn,
            }
        ],
    }
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"Policy": json.dumps(allow)})
    s3.create_bucket(Bucket="notices-bucket")
    target = {"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}
    s3.put_bucket_notification_configuration(
        Bucket="notices-bucket", NotificationConfiguration={"QueueConfigurations": [target]}
    )
    fault = cloud.faults.add(LostNotice(key="notices/run/end-*"))
    for key in ("notices/run/end-r0-a1-x.json", "notices/run/end-r1-a1-x.json"):
        s3.put_object(Bucket="notices-bucket", Key=key, Body=b"{}")
    assert fault.fired == 1

    def keys() -> list[str]:
        answer = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)
        records = [json.loads(message["Body"]).get("Records", []) for message in answer.get("Messages", [])]
        return [record["s3"]["object"]["key"] for found in records for record in found]

    assert wait_until("the other event", keys) == ["notices/run/end-r1-a1-x.json"]
    assert s3.head_object(Bucket="notices-bucket", Key="notices/run/end-r0-a1-x.json")


def test_no_process_of_a_pod_outlives_the_cloud(tmp_path: Path) -> None:
    with LocalCloud.start(tmp_path / "cloud", fast_settings(hyperpod=FAST, code=(PROGRAMS,))) as own:
        api = Api(own)
        api.create("left", ["sh", "-c", "echo pid $$$$; trap '' TERM; while true; do sleep 1; done"])
        pid = int(wait_until("the process", lambda: api.log("left").partition("pid ")[2].strip() or None))
        assert own.cluster_jobs() == [f"{NAMESPACE}/left"]
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
