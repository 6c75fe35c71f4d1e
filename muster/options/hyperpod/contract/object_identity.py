"""Names in a cluster, and labels and annotations of what Muster creates there: what they prove."""

from __future__ import annotations

from collections.abc import Mapping

from muster.contract import names
from muster.contract.answer_values import mapping_of

GROUP, VERSION, PLURAL, KIND = "sagemaker.amazonaws.com", "v1", "hyperpodpytorchjobs", "HyperPodPyTorchJob"
API_VERSION = f"{GROUP}/{VERSION}"
RBAC = "rbac.authorization.k8s.io"
OPERATOR, IDENTITY_AGENT = "amazon-sagemaker-hyperpod-training-operator", "eks-pod-identity-agent"
"""The add-ons of EKS without which no job runs."""

LABEL_STACK = "muster/stack"
"""The job prefix of the stack: by it all jobs of a stack are listed."""
LABEL_RUN = "muster/run"
LABEL_RANK = "muster/rank"
LABEL_ATTEMPT = "muster/attempt"
ANNOTATION_PLAN = "muster/plan"
"""The digest of the plan, which is too long for a label."""

_TAGS = {LABEL_RUN: names.TAG_RUN, LABEL_RANK: names.TAG_RANK, LABEL_ATTEMPT: names.TAG_ATTEMPT}


ACCOUNT_HEAD = "muster-"
"""The service accounts of runs begin with it, and no others that a spec may name."""


def service_account(run: str) -> str:
    """The service account of a run's pods: its pod identity has the rights of this run, and no other's."""
    return f"{ACCOUNT_HEAD}{run}"


def job_labels(prefix: str, run: str, rank: int, attempt: int) -> dict[str, str]:
    """The labels of an attempt's job and of its pods."""
    return {LABEL_STACK: prefix, LABEL_RUN: run, LABEL_RANK: str(rank), LABEL_ATTEMPT: str(attempt)}


def tags_of(metadata: Mapping[str, object]) -> dict[str, str]:
    """The tags that a training job with the same identity would have (`contract.names`), from an object's metadata."""
    labels, annotations = mapping_of(metadata.get("labels")), mapping_of(metadata.get("annotations"))
    found = {tag: str(labels[label]) for label, tag in _TAGS.items() if label in labels}
    if ANNOTATION_PLAN in annotations:
        found[names.TAG_PLAN] = str(annotations[ANNOTATION_PLAN])
    return found
