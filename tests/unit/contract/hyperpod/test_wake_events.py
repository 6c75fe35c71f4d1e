"""What wakes react: anything may be malformed or forged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.contract.hyperpod.notices import Notice, NoticeKind
from muster.contract.hyperpod.wake_events import cluster_of, is_from_topic, is_of_cluster, notices_of

KEY = "notices/one/end-r0-a1-pod-0-1.json"


def topic(message: Any) -> dict[str, Any]:
    text = message if isinstance(message, str) else json.dumps(message)
    return {"Records": [{"EventSource": "aws:sns", "Sns": {"Message": text}}]}


def put(key: Any, bucket: str = "bucket", name: str = "ObjectCreated:Put") -> dict[str, Any]:
    return {"Records": [{"eventName": name, "s3": {"bucket": {"name": bucket}, "object": {"key": key}}}]}


def test_a_notice_is_named_by_its_key() -> None:
    assert notices_of(topic(put(KEY)), "bucket") == [Notice("one", NoticeKind.END, 0, 1, "pod-0-1")]
    assert is_from_topic(topic(put(KEY)))


def test_each_notice_is_heeded_once() -> None:
    message = put(KEY)
    message["Records"] *= 3
    assert len(notices_of(topic(message), "bucket")) == 1


@pytest.mark.parametrize(
    "event",
    [
        topic(put(KEY, bucket="other")),
        topic(put(KEY, name="ObjectRemoved:Delete")),
        topic(put("control/one/plan.json")),
        topic(put("notices/one/end-r0-pod.json")),
        topic(put("notices/../control/end-r0-a1-x.json")),
        topic(put("notices/one/end-r0-a1-" + "x" * 2_000 + ".json")),
        topic(put(5)),
        topic(put(None)),
        topic({"Service": "Amazon S3", "Event": "s3:TestEvent"}),
        topic({"Records": "x"}),
        topic({"Records": [None, 5, {"s3": []}]}),
        topic("not json"),
        topic("[" * 100_000),
        topic("[]"),
        {"Records": [{"EventSource": "aws:sns", "Sns": "x"}]},
        {"Records": None},
        {},
    ],
)
def test_what_is_no_notice_of_this_bucket_is_left_out(event: dict[str, Any]) -> None:
    assert notices_of(event, "bucket") == []


def test_a_key_is_written_as_in_a_url() -> None:
    written = KEY.replace("/", "%2F")
    assert [notice.key for notice in notices_of(topic(put(written)), "bucket")] == [KEY]


@pytest.mark.parametrize(
    ("kind", "detail", "name"),
    [
        ("SageMaker HyperPod Cluster Node Health Event", {"ClusterName": "hyper"}, "hyper"),
        ("SageMaker HyperPod Cluster Event", {"EventDetails": {"ClusterName": "hyper"}}, "hyper"),
        ("SageMaker HyperPod Cluster State Change", {"ClusterName": "hyper", "ClusterStatus": "Failed"}, "hyper"),
        ("SageMaker HyperPod Cluster Event", {"EventDetails": "x"}, None),
        ("SageMaker HyperPod Cluster Event", {"ClusterName": "x" * 100}, None),
    ],
)
def test_an_event_of_hyperpod_names_its_cluster(kind: str, detail: dict[str, Any], name: str | None) -> None:
    event = {"source": "aws.sagemaker", "detail-type": kind, "detail": detail}
    assert is_of_cluster(event)
    assert cluster_of(event) == name


def test_only_sagemaker_reports_about_clusters() -> None:
    event = {"detail-type": "SageMaker HyperPod Cluster Event", "detail": {"ClusterName": "hyper"}}
    assert not is_of_cluster({**event, "source": "mine"})
    assert not is_of_cluster({**event, "source": "aws.sagemaker", "detail-type": "Else"})
