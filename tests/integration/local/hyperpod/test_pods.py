"""Pods as processes: environment, volumes, resources, ends, logs."""

import json
import re
from typing import Any

from tests.support.hyperpod.cluster import PodCluster
from tests.support.waiting import wait_until


def shell(script: str, **more: Any) -> dict[str, Any]:
    return {"command": ["sh", "-c", script], **more}


def terminated(cluster: PodCluster, name: str) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        for pod in cluster.pods(name):
            for item in pod["status"].get("containerStatuses") or ():
                if "terminated" in item["state"]:
                    state: dict[str, Any] = item["state"]["terminated"]
                    return state
        return None

    return wait_until("the end of the container", found)


def test_a_container_has_what_its_spec_says_and_nothing_of_the_service(cluster: PodCluster) -> None:
    env = [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "BOTH", "value": "$(POD_NAME)/$(POD_IP)"},
    ]
    name = cluster.create(container=shell("env; sleep 60", env=env))
    wait_until("the environment", lambda: "BOTH=" in cluster.log(name))
    known = dict(line.split("=", 1) for line in cluster.log(name).splitlines() if "=" in line)
    address = cluster.pod(name)["status"]["podIP"]
    assert re.fullmatch(r"127\.2[45]\d\.\d+\.\d+", address)
    assert known["BOTH"] == f"{name}-pod-0/{address}"
    assert known["HOSTNAME"] == f"{name}-pod-0"
    assert known["SAGEMAKER_BASE_DIR"].endswith("/ml")
    assert not any(key.startswith(("AWS_CONTAINER", "AWS_ACCESS", "PYTEST")) for key in known)
    cluster.remove(name)


def test_volumes_are_folders(cluster: PodCluster) -> None:
    volumes = [{"name": "scratch", "emptyDir": {}}, {"name": "disk", "hostPath": {"path": "/mnt/disk"}}]
    mounts = [
        {"name": "scratch", "mountPath": "/opt/ml/model", "subPath": "model"},
        {"name": "disk", "mountPath": "/disk"},
    ]
    script = 'echo "$MUSTER_LOCAL_MOUNTS"; cd $SAGEMAKER_BASE_DIR; echo x > model/f; cat model/f; sleep 60'
    name = cluster.create(container=shell(script, volumeMounts=mounts), pod={"volumes": volumes})
    wait_until("the content", lambda: cluster.log(name).splitlines()[1:] == ["x"])
    known = json.loads(cluster.log(name).splitlines()[0])
    assert set(known) == {"/opt/ml/model", "/disk"}
    assert cluster.pod(name)["spec"]["nodeName"] in known["/disk"]
    cluster.remove(name)


def test_exit_codes_and_termination_messages(cluster: PodCluster) -> None:
    script = "echo why > $MUSTER_LOCAL_TERMINATION_LOG; exit 5"
    said, last, none = (
        cluster.create(container=container, jobMaxRetryCount=0)
        for container in (
            shell(script),
            shell("echo last words; exit 1", terminationMessagePolicy="FallbackToLogsOnError"),
            {"command": ["no-such-program"]},
        )
    )
    state = terminated(cluster, said)
    assert (state["exitCode"], state["reason"], state["message"].strip()) == (5, "Error", "why")
    assert "why" in cluster.wait(said, "Failed")["message"]
    assert terminated(cluster, last)["message"] == "last words"
    state = terminated(cluster, none)
    assert (state["exitCode"], state["reason"]) == (128, "StartError")


def test_a_container_above_its_memory_is_killed(cluster: PodCluster) -> None:
    script = "python -c 'import time; held = bytearray(200 << 20); time.sleep(60)'"
    resources = {"limits": {"memory": "100Mi"}, "requests": {"cpu": "1"}}
    name = cluster.create(container=shell(script, resources=resources), jobMaxRetryCount=0)
    state = terminated(cluster, name)
    assert (state["exitCode"], state["reason"]) == (137, "OOMKilled")
    assert "OOMKilled, exit code: 137" in cluster.wait(name, "Failed")["message"]


def test_lines_are_shipped_by_node(cluster: PodCluster) -> None:
    name = cluster.create(container=shell(f"echo a line of {__name__}; sleep 60"))
    wait_until("the line", lambda: "a line of" in cluster.log(name))
    node = cluster.pod(name)["spec"]["nodeName"]
    wait_until("the shipment", lambda: (node, f"a line of {__name__}") in cluster.shipped)
    cluster.remove(name)


def test_a_pod_waits_for_what_the_cluster_does_not_have(cluster: PodCluster) -> None:
    keys = {"envFrom": [{"secretRef": {"name": "keys"}}]}
    volume = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
    mounted = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    for said, container, pod in (('secret "keys"', keys, {}), ('persistentvolumeclaim "data"', mounted, volume)):
        name = cluster.create(container=shell("exit 0", **container), pod=pod)
        wait_until(said, lambda name=name, said=said: f"{said} not found" in str(cluster.pod_statuses(name)))
        assert "CreateContainerConfigError" in str(cluster.pod_statuses(name))
        cluster.remove(name)
