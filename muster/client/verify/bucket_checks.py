"""The stack's bucket: where it is, what its policy refuses, how it keeps what runs write."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError as AwsError

from muster.client.aws.error_translation import error_code
from muster.client.verify.asking import allowed
from muster.client.verify.bucket_policy import Policy, refuses
from muster.client.verify.services import Account
from muster.client.verify.verification import Check, judged
from muster.contract.layout import RunLayout
from muster.contract.recipe.recipe_reference import RECIPES
from muster.contract.run.source_delivery import EXPIRY_DAYS, PACKAGES, SOURCE

PLACE, POLICY, PRIVACY, ENCRYPTION, LIFECYCLE = (
    "bucket-place",
    "bucket-policy",
    "bucket-privacy",
    "bucket-encryption",
    "bucket-lifecycle",
)
BUCKET = (PLACE, POLICY, PRIVACY, ENCRYPTION, LIFECYCLE)

_RUN = RunLayout("verify")
WRITTEN_ONCE = (
    *(_RUN.plan, _RUN.result, _RUN.announced, _RUN.finished, _RUN.page),
    *(_RUN.lineage, _RUN.continued_by, _RUN.document),
)
SWAPPED = (
    *(_RUN.fence, _RUN.record(0), _RUN.roll_up_shard(0)),
    *(f"{SOURCE}verify.tar.gz", f"{PACKAGES}verify.zip", f"{RECIPES}verify.json"),
)
KEPT = ("control/", "runs/", "rendezvous/", "checkpoints/")
"""Prefixes under which nothing may expire by age: a run, or its continuation after any time, needs it."""

_DATE = len("2026-11-21")
_OBJECT = f"{_RUN.rendezvous}verify"
_KEYS = {
    "secure": "aws:securetransport",
    "tls": "s3:tlsversion",
    "if_match": "s3:if-match",
    "if_none_match": "s3:if-none-match",
}
_SAFE = {"aws:securetransport": "true", "s3:tlsversion": "1.2", "s3:objectcreationoperation": "true"}
_REMEDY = "Deploy the stack again. If something else manages the bucket's policy, let it keep Muster's statements."
_NOT_SET = {
    "NoSuchBucketPolicy",
    "NoSuchLifecycleConfiguration",
    "NoSuchPublicAccessBlockConfiguration",
    "OwnershipControlsNotFoundError",
    "ServerSideEncryptionConfigurationNotFoundError",
}


@dataclass(frozen=True)
class LifecycleRule:
    """A rule that is switched on: objects under `prefix` expire, or parts of unfinished uploads are deleted."""

    prefix: str
    expires_days: int | None
    aborts_uploads_days: int | None
    expires_on: str = ""
    """The date (YYYY-MM-DD) from which on all objects expire, whatever their age; empty without one."""


@dataclass(frozen=True)
class BucketFacts:
    """What is known of the bucket; None is what is not set."""

    name: str
    region: str
    region_found: str
    arn: str
    policy: Policy | None
    access_block: Mapping[str, bool]
    ownership: str
    encryption: str
    lifecycle: tuple[LifecycleRule, ...]
    deployed_lifecycle: tuple[LifecycleRule, ...] | None
    """What the template sets; None where the bucket is not the template's."""


def gather_bucket(account: Account) -> BucketFacts:
    """Six calls about the bucket."""
    name, s3 = account.cloud.stack.bucket, account.s3
    arn = f"arn:{account.identity.partition}:s3:::{name}"
    with allowed("s3:ListBucket", arn):
        region = s3.head_bucket(Bucket=name).get("BucketRegion", "")
    policy: Policy | None = None
    block: Mapping[str, bool] = {}
    ownership = encryption = ""
    rules: Iterable[Mapping[str, Any]] = ()
    with _set("s3:GetBucketPolicy", arn):
        policy = json.loads(s3.get_bucket_policy(Bucket=name)["Policy"])
    with _set("s3:GetBucketPublicAccessBlock", arn):
        answer: Any = s3.get_public_access_block(Bucket=name)["PublicAccessBlockConfiguration"]
        block = answer
    with _set("s3:GetBucketOwnershipControls", arn):
        ownership = s3.get_bucket_ownership_controls(Bucket=name)["OwnershipControls"]["Rules"][0]["ObjectOwnership"]
    with _set("s3:GetEncryptionConfiguration", arn):
        encryption = _algorithm(s3.get_bucket_encryption(Bucket=name))
    with _set("s3:GetLifecycleConfiguration", arn):
        found: Any = s3.get_bucket_lifecycle_configuration(Bucket=name)["Rules"]
        rules = found
    return BucketFacts(
        name=name,
        region=account.session.region_name,
        region_found=region,
        arn=arn,
        policy=policy,
        access_block=block,
        ownership=ownership,
        encryption=encryption,
        lifecycle=tuple(lifecycle_rules(rules)),
        deployed_lifecycle=_deployed(account, name),
    )


def judge_bucket(facts: BucketFacts) -> Iterator[Check]:
    """One check for each name in `BUCKET`."""
    elsewhere = [f"the bucket {facts.name} is in {facts.region_found}"] if facts.region_found != facts.region else []
    seen = f"{facts.name} is in {facts.region}, as the stack is."
    yield judged(
        PLACE, elsewhere, seen, "Use a bucket of the stack's region: SageMaker writes no checkpoints elsewhere."
    )
    seen = f"refuses plain HTTP, TLS below 1.2, overwriting of {len(WRITTEN_ONCE)} documents, and blind writes."
    yield judged(POLICY, policy_problems(facts), seen, _REMEDY)
    open_ = sorted(key for key in _BLOCKS if not facts.access_block.get(key))
    problems = [f"the public access block has no {', '.join(open_)}"] if open_ else []
    if facts.ownership != "BucketOwnerEnforced":
        problems.append(f"object ownership is {facts.ownership or 'not set'}, so ACLs count")
    yield judged(PRIVACY, problems, "public access is blocked in all four ways, and ACLs are off.", _REMEDY)
    plain = [] if facts.encryption else ["the bucket has no default encryption"]
    yield judged(ENCRYPTION, plain, f"objects are encrypted with {facts.encryption}.", _REMEDY)
    yield _lifecycle(facts)


_BLOCKS = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")


def policy_problems(facts: BucketFacts) -> list[str]:
    """What the bucket's policy should refuse and does not, and what it refuses although it must not."""
    if facts.policy is None:
        return ["the bucket has no policy: it accepts plain HTTP and overwriting"]

    def refused(action: str, key: str, **context: str) -> bool:
        request = {**_SAFE, **{_KEYS[name]: value for name, value in context.items()}}
        return refuses(facts.policy or {}, action, f"{facts.arn}/{key}", request)

    read, write = "s3:GetObject", "s3:PutObject"
    problems = []
    if not refused(read, _OBJECT, secure="false"):
        problems.append("it accepts plain HTTP")
    if not refused(read, _OBJECT, tls="1.1"):
        problems.append("it accepts TLS 1.1")
    once = [key for key in WRITTEN_ONCE if not refused(write, key) or not refused(write, key, if_match="etag")]
    problems += [f"{key} can be overwritten (PutObject without If-None-Match)" for key in once]
    blind = [key for key in SWAPPED if not refused(write, key)]
    problems += [f"{key} can be written without a condition (If-Match or If-None-Match)" for key in blind]
    own = [key for key in (*WRITTEN_ONCE, *SWAPPED, _OBJECT) if refused(write, key, if_none_match="*")]
    problems += [f"it refuses Muster's own write of {key}" for key in own]
    return problems


def _lifecycle(facts: BucketFacts) -> Check:
    problems = [
        f"objects under {rule.prefix or 'every prefix'} expire after {rule.expires_days} days, which is too early"
        for rule in facts.lifecycle
        if rule.expires_days is not None and _is_too_early(rule.prefix, rule.expires_days)
    ]
    problems += [
        f"objects under {rule.prefix or 'every prefix'} expire on {rule.expires_on}, whatever their age"
        for rule in facts.lifecycle
        if rule.expires_on and _is_too_early(rule.prefix, 0)
    ]
    for rule in facts.deployed_lifecycle or ():
        if rule not in facts.lifecycle:
            problems.append(f"the deployed rule for {rule.prefix or 'every prefix'} is not there or was changed")
    expiring = [f"{rule.prefix} after {rule.expires_days} days" for rule in facts.lifecycle if rule.expires_days]
    aborts = min((rule.aborts_uploads_days for rule in facts.lifecycle if rule.aborts_uploads_days), default=None)
    uploads = "stay" if aborts is None else f"are removed after {aborts} days"
    seen = (
        f"expire: {', '.join(expiring) or 'nothing'}; nothing that a run or its continuation needs does; parts of "
        f"unfinished uploads {uploads}."
    )
    return judged(
        LIFECYCLE, problems, seen, "Deploy the stack again, and remove rules of your own that cover its prefixes."
    )


def _is_too_early(prefix: str, days: int) -> bool:
    """Whether objects that a run may need are gone after `days`."""

    def covers(part: str) -> bool:
        return part.startswith(prefix) or prefix.startswith(part)

    return any(map(covers, KEPT)) or (days < EXPIRY_DAYS and any(map(covers, (SOURCE, PACKAGES, RECIPES))))


def expiry_days(rules: Iterable[LifecycleRule], key: str) -> int | None:
    """After how many days an object at `key` expires; None where it does not."""
    days = [rule.expires_days for rule in rules if rule.expires_days and key.startswith(rule.prefix)]
    return min(days, default=None)


@contextmanager
def _set(action: str, arn: str) -> Iterator[None]:
    """Makes a call that fails where nothing is set; that is a fact, and no error."""
    with allowed(action, arn):
        try:
            yield
        except AwsError as error:
            if error_code(error) not in _NOT_SET:
                raise


def _algorithm(answer: Any) -> str:
    for rule in answer["ServerSideEncryptionConfiguration"]["Rules"]:
        default = rule.get("ApplyServerSideEncryptionByDefault", {})
        if "SSEAlgorithm" in default:
            key = default.get("KMSMasterKeyID")
            return f"{default['SSEAlgorithm']} ({key})" if key else str(default["SSEAlgorithm"])
    return ""


def lifecycle_rules(rules: Iterable[Mapping[str, Any]]) -> Iterator[LifecycleRule]:
    """The rules of an answer of S3, or of a template, that are switched on and delete something."""
    for rule in rules:
        chosen = rule.get("Filter") or {}
        several = chosen.get("And") or {}
        prefix = rule.get("Prefix") or chosen.get("Prefix") or several.get("Prefix") or ""
        # No object of a run has tags.
        tagged = rule.get("TagFilters") or chosen.get("Tag") or several.get("Tags")
        if rule.get("Status") != "Enabled" or tagged:
            continue
        expiration = rule.get("Expiration") or {}
        days = expiration.get("Days") or rule.get("ExpirationInDays")
        date = expiration.get("Date") or rule.get("ExpirationDate") or ""
        abort = (rule.get("AbortIncompleteMultipartUpload") or {}).get("DaysAfterInitiation")
        if days is None and abort is None and not date:
            continue
        yield LifecycleRule(
            prefix, None if days is None else int(days), None if abort is None else int(abort), str(date)[:_DATE]
        )


def _deployed(account: Account, bucket: str) -> tuple[LifecycleRule, ...] | None:
    for _, name, properties in account.template.of_type("AWS::S3::Bucket"):
        if name == bucket:
            return tuple(lifecycle_rules(properties.get("LifecycleConfiguration", {}).get("Rules", [])))
    return None
