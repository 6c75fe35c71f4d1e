"""Buckets of other accounts: a request needs the identity policies of its caller and the policy of the bucket.

MiniStack asks a foreign bucket's policy about the caller's account alone: neither a role nor a session tag has a say.
Here the bucket's policy is evaluated with the identity policies, for each action and each key of a request. ACLs give
nobody of another account anything: new buckets have them disabled.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from functools import partial
from typing import Any

from ministack.core import iam_evaluator, responses
from ministack.services import s3

from muster.local.ministack.host import bucket_home

# The foreign buckets whose policies have been evaluated in this request: what was denied has ended it.
_evaluated: contextvars.ContextVar[frozenset[str]] = contextvars.ContextVar("muster_evaluated", default=frozenset())
# Whether the request creates a bucket: no policy of one that has its name concerns it.
_creates: contextvars.ContextVar[bool] = contextvars.ContextVar("muster_creates", default=False)
_NO_POLICY = ""


def install() -> None:
    """Let MiniStack evaluate the policies of foreign buckets."""
    s3.bucket_policy_for_arn = partial(_policy_of, s3.bucket_policy_for_arn)
    s3._foreign_bucket_allows = partial(_allows, s3._foreign_bucket_allows)


def begin(operation: str) -> None:
    """Note, in this request's task, which operation of S3 it is."""
    _creates.set(operation == "CreateBucket")


def _policy_of(policy_of: Callable[[str], tuple[str, str] | None], resource_arn: str) -> tuple[str, str] | None:
    own = policy_of(resource_arn)
    if own is not None or ":s3:::" not in resource_arn or _creates.get():
        return own
    bucket = resource_arn.partition(":s3:::")[2].partition("/")[0]
    home = bucket_home(bucket)
    if home is None or home.account_id == responses.get_account_id():
        return None
    _evaluated.set(_evaluated.get() | {bucket})
    policy = str(s3._bucket_policies.get_scoped(home.account_id, None, bucket) or _NO_POLICY)
    # A public policy allows other accounts nothing where it is restricted.
    restricted = s3._public_access_blocked(home.account_id, bucket, "RestrictPublicBuckets")
    closed = bool(policy) and restricted and s3._policy_is_public(policy)
    return _NO_POLICY if closed else policy, home.account_id


def _allows(allows: Callable[..., bool], owner: str, bucket: str, /, *rest: Any) -> bool:
    if iam_evaluator.caller_arn().endswith(":root"):
        # The root user has no identity policies, and MiniStack evaluates nothing for it.
        return allows(owner, bucket, *rest)
    return bucket in _evaluated.get()
