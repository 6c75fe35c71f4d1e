"""The notices that S3's events name, as a topic or a queue brings them.

Anything in them may be malformed or forged: what cannot be read is left out, and the rest only says where to look.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from urllib.parse import unquote_plus

from muster.contract.answer_values import mapping_of, mappings_of
from muster.contract.run.notices import Notice

_KEY_MAX = 1_024  # S3: bytes of a key


def notices_of(event: Mapping[str, object], bucket: str) -> list[Notice]:
    """The notices that a topic's messages name, each once, of this bucket alone. A queue may have brought them."""
    found = (Notice.parse(key) for message in _messages(event) for key in _keys(message, bucket))
    return list(dict.fromkeys(notice for notice in found if notice is not None))


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
