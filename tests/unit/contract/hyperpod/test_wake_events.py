"""What wakes react and look: anything may be malformed or forged."""

import json
from typing import Any

from muster.contract.run.notice_events import notices_of
from muster.contract.run.notices import Notice, NoticeKind
from muster.options.hyperpod.contract.wake_events import cluster_of, is_of_cluster

KEY = "notices/one/end-r0-a1-pod-0-1.json"


def topic(message: Any) -> dict[str, Any]:
    text = message if isinstance(message, str) else json.dumps(message)
    return {"Records": [{"EventSource": "aws:sns", "Sns": {"Message": text}}]}


def put(key: Any, bucket: str = "bucket", name: str = "ObjectCreated:Put") -> dict[str, Any]:
    return {"Records": [{"eventName": name, "s3": {"bucket": {"name": bucket}, "object": {"key": key}}}]}


def test_a_notice_is_named_by_its_key_and_heeded_once() -> None:
    message = put(KEY)
    message["Records"] *= 3
    assert notices_of(topic(message), "bucket") == [Notice("one", NoticeKind.END, 0, 1, "pod-0-1")]
    # A queue brings the topic's notification as the text of its own message.
    [record] = topic(message)["Records"]
    queued = {"Records": [{"eventSource": "aws:sqs", "body": json.dumps(record["Sns"])}] * 2}
    assert notices_of(queued, "bucket") == notices_of(topic(message), "bucket")
    # A key is written as in a URL.
    assert [notice.key for notice in notices_of(topic(put(KEY.replace("/", "%2F"))), "bucket")] == [KEY]


STRANGE: list[dict[str, Any]] = [
    topic(put(KEY, bucket="other")),
    topic(put(KEY, name="ObjectRemoved:Delete")),
    topic(put("control/one/plan.json")),
    topic(put("notices/one/end-r0-pod.json")),
    topic(put("notices/../control/end-r0-a1-x.json")),
    topic(put("notices/one/end-r0-a1-" + "x" * 2_000 + ".json")),
    topic(put(None)),
    topic({"Records": "x"}),
    topic({"Records": [None, 5, {"s3": []}]}),
    topic("not json"),
    topic("[" * 100_000),
    {"Records": [{"EventSource": "aws:sns", "Sns": "x"}]},
    {"Records": [{"eventSource": "aws:sqs", "body": "[" * 100_000}, {"eventSource": "aws:sqs", "body": 7}]},
    {},
]


def test_what_is_no_notice_of_this_bucket_is_left_out() -> None:
    for event in STRANGE:
        assert notices_of(event, "bucket") == [], str(event)[:200]


def test_an_event_of_hyperpod_names_its_cluster() -> None:
    for kind, detail, name in (
        ("Cluster Node Health Event", {"ClusterName": "hyper"}, "hyper"),
        ("Cluster Event", {"EventDetails": {"ClusterName": "hyper"}}, "hyper"),
        ("Cluster Event", {"EventDetails": "x"}, None),
        ("Cluster Event", {"ClusterName": "x" * 100}, None),
    ):
        event = {"source": "aws.sagemaker", "detail-type": f"SageMaker HyperPod {kind}", "detail": detail}
        assert is_of_cluster(event), kind
        assert cluster_of(event) == name, detail
        # Nobody else reports about clusters.
        assert not is_of_cluster({**event, "source": "mine"})
        assert not is_of_cluster({**event, "detail-type": "Else"})
