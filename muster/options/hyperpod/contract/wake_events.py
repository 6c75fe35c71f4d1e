"""What wakes functions about jobs on clusters: look by S3's events of notices, react by HyperPod's own events.

Anything in them may be malformed or forged: what cannot be read is left out, and the rest only says where to look.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from urllib.parse import unquote_plus

from muster.contract.answer_values import mapping_of, mappings_of
from muster.contract.run.notices import Notice

CLUSTER_EVENTS = (
    "SageMaker HyperPod Cluster Node Health Event",
    "SageMaker HyperPod Cluster Event",
    "SageMaker HyperPod Cluster State Change",
)
"""The types of HyperPod's events that may be about the nodes of a job."""
_KEY_MAX = 1_024  # S3: bytes of a key
_NAME_MAX = 63


def notices_of(event: Mapping[str, object], bucket: str) -> list[Notice]:
    """The notices that a topic's messages name, each once, of this bucket alone. A queue may have brought them."""
    found = (Notice.parse(key) for message in _messages(event) for key in _keys(message, bucket))
    return list(dict.fromkeys(notice for notice in found if notice is not None))


def is_of_cluster(event: Mapping[str, object]) -> bool:
    """Whether an event of EventBridge is one of HyperPod about a cluster."""
    return event.get("source") == "aws.sagemaker" and event.get("detail-type") in CLUSTER_EVENTS


def cluster_of(event: Mapping[str, object]) -> str | None:
    """The name of the HyperPod cluster that such an event is about."""
    detail = mapping_of(event.get("detail"))
    inner = mapping_of(detail.get("EventDetails"))
    for part in (detail, inner, mapping_of(inner.get("EventMetadata"))):
        name = part.get("ClusterName")
        if isinstance(name, str) and 0 < len(name) <= _NAME_MAX:
            return name
    return None


def _messages(event: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    for record in mappings_of(event.get("Records")):
        # Lambda gets the topic's notification as it is, or as the body of a message of a queue.
        notification = mapping_of(record.get("Sns")) or _document(record.get("body"))
        yield _document(notification.get("Message"))


def _keys(message: Mapping[str, object], bucket: str) -> Iterator[str]:
    """The keys of S3's event; none in its test event, which has no records."""
    for record in mappings_of(message.get("Records")):
        where = mapping_of(record.get("s3"))
        key = mapping_of(where.get("object")).get("key")
        is_ours = mapping_of(where.get("bucket")).get("name") == bucket
        is_new = str(record.get("eventName", "")).startswith("ObjectCreated:")
        if is_ours and is_new and isinstance(key, str) and len(key) <= _KEY_MAX:
            # S3 writes keys as in a URL's query.
            yield unquote_plus(key)


def _document(text: object) -> Mapping[str, object]:
    try:
        return mapping_of(json.loads(text)) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return {}
