"""Reviews: what the caller may do, and who the caller is. They are answered and not kept."""

from __future__ import annotations

from muster.local.kubernetes.objects.status_errors import Document, bad_request
from muster.local.kubernetes.rights.authorizer import Authorizer
from muster.local.kubernetes.rights.users import Attributes, User

REVIEWS = {
    ("authorization.k8s.io", "selfsubjectaccessreviews"): "SelfSubjectAccessReview",
    ("authorization.k8s.io", "selfsubjectrulesreviews"): "SelfSubjectRulesReview",
    ("authentication.k8s.io", "selfsubjectreviews"): "SelfSubjectReview",
}


def review(kind: str, document: Document, user: User, authorizer: Authorizer) -> Document:
    """The answer to a review.

    Raises:
        StatusError: 400 where it asks for nothing.
    """
    group = "authentication" if kind == "SelfSubjectReview" else "authorization"
    answer: Document = {
        "kind": kind,
        "apiVersion": f"{group}.k8s.io/v1",
        "metadata": {"creationTimestamp": None},
        "spec": document.get("spec") or {},
    }
    if kind == "SelfSubjectAccessReview":
        answer["status"] = _access(answer["spec"], user, authorizer)
    elif kind == "SelfSubjectRulesReview":
        answer["status"] = _rules(answer["spec"], user, authorizer)
    else:
        answer["status"] = {"userInfo": {"username": user.name, "uid": user.uid, "groups": list(user.groups)}}
    return answer


def _access(spec: Document, user: User, authorizer: Authorizer) -> Document:
    about, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (about is None) is (path is None):
        message = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise bad_request(message)
    if about is None:
        asked = Attributes((path or {}).get("verb", ""), path=(path or {}).get("path", ""))
    else:
        asked = Attributes(
            about.get("verb", ""),
            about.get("group", ""),
            about.get("resource", ""),
            about.get("subresource", ""),
            about.get("namespace", ""),
            about.get("name", ""),
        )
    return {"allowed": authorizer.allows(user, asked)}


def _rules(spec: Document, user: User, authorizer: Authorizer) -> Document:
    namespace = spec.get("namespace", "")
    if not namespace:
        message = "no namespace on request"
        raise bad_request(message)
    rules = list(authorizer.rules(user, namespace))
    return {
        "resourceRules": [
            {
                "verbs": list(rule.verbs),
                "apiGroups": list(rule.groups),
                "resources": list(rule.resources),
                **({"resourceNames": list(rule.names)} if rule.names else {}),
            }
            for rule in rules
            if rule.resources
        ],
        "nonResourceRules": [
            {"verbs": list(rule.verbs), "nonResourceURLs": list(rule.paths)} for rule in rules if rule.paths
        ],
        # What the access policies of EKS give is not listed, as EKS's own authorizer lists nothing.
        "incomplete": bool(user.policies),
    }
