"""Requests: what one asks for, and the object in its body."""

from __future__ import annotations

from collections.abc import Mapping

from muster.contract.answer_values import strict_json
from muster.options.hyperpod.contract.job_schema import job_schema, problems_of
from muster.options.hyperpod.local.kubernetes.rights import Attributes
from muster.options.hyperpod.local.kubernetes.status_errors import Document, bad_request, not_served

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "GET": "get", "HEAD": "get", "DELETE": "delete"}
_OF_LISTS = {"get": "list", "delete": "deletecollection"}
_JSON = "application/json"


def request_info(method: str, path: str) -> Attributes:
    """Take a request apart, before it is known whether there is such a thing."""
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == "api":
        group, version, *rest = "", *parts[1:]
    elif len(parts) >= 4 and parts[0] == "apis":
        group, version, *rest = parts[1:]
    else:
        return Attributes(method.lower(), path=path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        _, namespace, *rest = rest
    resource, name, *more = (*rest, "")
    verb = _VERBS.get(method, method.lower())
    verb = verb if name else _OF_LISTS.get(verb, verb)
    return Attributes(verb, group, resource, "/".join(filter(None, more)), namespace, name, version=version)


def read_body(body: bytes, headers: Mapping[str, str], what: str) -> Document:
    """The object in a body.

    Args:
        body: the bytes.
        headers: with their media type; none is JSON.
        what: `HyperPodPyTorchJob in version "v1"`, for messages.

    Raises:
        StatusError: 400 where it is none, or has a field twice; 501 for another type.
    """
    kind = headers.get("content-type", "").split(";")[0].strip().lower()
    if kind not in ("", _JSON):
        other = f"a body of {kind}"
        raise not_served(other)
    try:
        document = strict_json(body)
    except (ValueError, RecursionError) as error:
        message = f"couldn't get version/kind; json parse error: {error}"
        raise bad_request(message) from error
    if not isinstance(document, dict):
        message = f"{what} cannot be handled: json: cannot unmarshal into an object"
        raise bad_request(message)
    return document


def parse_labels(text: str) -> dict[str, str]:
    """The labels that `a=b,c=d` asks for. Kubernetes has other selectors, too, which are not served.

    Raises:
        StatusError: 400 where no object can have them, 501 for another selector.
    """
    wanted: Document = {}
    for part in text.split(",") if text.strip() else []:
        key, equal, value = part.partition("=")
        if not equal or key.endswith("!"):
            what = f"the label selector {text!r}"
            raise not_served(what)
        wanted[key.strip()] = value.removeprefix("=").strip()
    if problems := problems_of(wanted, job_schema()["properties"]["metadata"]["properties"]["labels"]):
        message = f"unable to parse requirement: {problems[0]}"
        raise bad_request(message)
    return wanted
