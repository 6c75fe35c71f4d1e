"""Labels: their keys and values, and the selectors that name them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from muster.local.kubernetes.objects.status_errors import Document, bad_request, not_served

_NAME = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_PREFIX = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
LABEL_KEY = re.compile(rf"(?:(?P<prefix>{_PREFIX})/)?{_NAME}")
LABEL_VALUE = re.compile(rf"({_NAME})?")


def is_label_key(key: str) -> bool:
    """Whether a text may be the key of a label or an annotation."""
    found = LABEL_KEY.fullmatch(key)
    return found is not None and len(found["prefix"] or "") <= 253


def is_label_value(value: str) -> bool:
    """Whether a text may be the value of a label."""
    return LABEL_VALUE.fullmatch(value) is not None


def parse_labels(text: str) -> dict[str, str]:
    """The labels that `a=b,c=d` asks for. Kubernetes has other selectors, too, which are not served.

    Raises:
        StatusError: it cannot be parsed.
    """
    wanted = {}
    for part in text.split(",") if text.strip() else []:
        key, equal, value = part.partition("=")
        if not equal or key.endswith("!"):
            what = f"the label selector {text!r}"
            raise not_served(what)
        if not is_label_key(key.strip()) or not is_label_value(value.removeprefix("=").strip()):
            message = f"unable to parse requirement: {part!r} is no key with a value"
            raise bad_request(message)
        wanted[key.strip()] = value.removeprefix("=").strip()
    return wanted


def has_labels(document: Document, wanted: Mapping[str, str]) -> bool:
    """Whether an object has all these labels."""
    return wanted.items() <= (document["metadata"].get("labels") or {}).items()
