"""The stack, its bucket, the account around it and the image of the run: what costs nothing to ask."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Any

from muster.client.aws.deployed_stack import outputs_of
from muster.client.aws.price_list import listed_prices
from muster.client.aws.s3_route import nat_warning, read_routes
from muster.client.launch.estimate import Quota
from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.aws.stock_images import EcrImage
from muster.contract.run.orphans import YOUNG_SECONDS, is_own, suspects
from muster.contract.spec.recipe_reference import RECIPES
from muster.contract.training.source_delivery import EXPIRY_DAYS, PACKAGES, SOURCE
from muster.options.verify.client.check_outcomes import Check, CheckOutcome, check, judged
from muster.options.verify.client.verified_stack import Account, many

OUTPUTS = (
    *("StateMachineArn", "BucketName", "JobPrefix", "ReplicaRoleArn", "ReplicaDefaults", "EventBusName"),
    *("NotificationTopicArn", "DeadLetterQueueUrl", "Region", "Version"),
)
"""The outputs that the client and its users rely on."""
KEPT = ("control/", "runs/", "rendezvous/", "checkpoints/")
"""Prefixes under which nothing may expire: a run, or its continuation after any time, needs it."""
_BLOCKS = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
# Of the policy of a bucket that the stack did not make: two conditions, and the names of two statements.
_OF_POLICY = ("aws:SecureTransport", "s3:TlsVersion", "WrittenOnce", "ComparedAndSwapped")
_AGAIN = "Deploy the stack again."
_POLICY = f"{_AGAIN} If something else manages the bucket's policy, let it keep Muster's statements."
_PRICE_FACTOR = 2.0  # the shipped table is of one region and one day


def stack(account: Account) -> Iterator[Check]:
    """Whose credentials these are, and whether the stack is whole and of the client's version."""
    partition, region, name = account.partition, account.region, account.cloud.stack.name
    own = account.session.get_partition_for_region(region)
    seen = f"account {account.identity['Account']}, as {account.identity['Arn']}, in {region} (partition {partition})."
    foreign = {f"the credentials belong to the partition {partition}, and {region} is in {own}": partition != own}
    yield judged("credentials", seen, foreign, "Choose a profile and a region of the same partition.")
    status, outputs = account.description["StackStatus"], outputs_of(account.description)
    missing = [output for output in OUTPUTS if not outputs.get(output)]
    problems = {
        f"{name} is {status}": not status.endswith("_COMPLETE") or "ROLLBACK" in status,
        f"the outputs {', '.join(missing)} are missing": missing,
        f"the output Region is {outputs.get('Region')}": outputs.get("Region", region) != region,
    }
    remedy = "Deploy the stack again, and read the first error of the deployment."
    yield judged("stack", f"{name} is {status} and has all {len(OUTPUTS)} outputs.", problems, remedy)
    deployed, client = outputs.get("Version") or "older than 0.1.0", version("muster-train")
    seen = f"{deployed} is deployed, and the client is {client}."
    if deployed == client:
        yield check("version", CheckOutcome.OK, seen)
    else:
        yield check("version", CheckOutcome.INFO, seen, "Deploy the client's, or install the deployed one.")


def bucket(account: Account) -> Iterator[Check]:
    """Where the bucket is, who may read and overwrite it, and how long it keeps what runs write."""
    name = account.cloud.stack.bucket
    policies, buckets = (
        [item for _, _, item in account.template.of_type(f"AWS::S3::{kind}")] for kind in ("BucketPolicy", "Bucket")
    )

    def ask(operation: str, key: str, empty: Any) -> Any:
        return account.ask("s3", operation, Bucket=name).get(key, empty)

    place = ask("head_bucket", "BucketRegion", "")
    problems: dict[str, object] = {f"the bucket {name} is in {place}": place != account.region}
    remedy = "Use a bucket of the stack's region: SageMaker writes no checkpoints elsewhere."
    yield judged("bucket-place", f"{name} is in {account.region}, as the stack is.", problems, remedy)
    deployed = policies[0]["PolicyDocument"]["Statement"] if policies else None
    problems = dict.fromkeys(policy_problems(json.loads(ask("get_bucket_policy", "Policy", "{}")), deployed), True)
    seen = "refuses plain HTTP, TLS below 1.2, overwriting of documents that are written once, and blind writes."
    yield judged("bucket-policy", seen, problems, _POLICY)
    block = ask("get_public_access_block", "PublicAccessBlockConfiguration", {})
    owners = ask("get_bucket_ownership_controls", "OwnershipControls", {}).get("Rules", [{}])
    problems = {f"the public access block has no {key}": not block.get(key) for key in _BLOCKS}
    owner = owners[0].get("ObjectOwnership", "not set")
    problems[f"object ownership is {owner}, so ACLs count"] = owner != "BucketOwnerEnforced"
    yield judged("bucket-privacy", "public access is blocked in all four ways, and ACLs are off.", problems, _POLICY)
    rules = ask("get_bucket_encryption", "ServerSideEncryptionConfiguration", {}).get("Rules", ())
    used = " ".join(str(value) for one in rules for value in one.get("ApplyServerSideEncryptionByDefault", {}).values())
    problems = {"the bucket has no default encryption": not used}
    yield judged("bucket-encryption", f"objects are encrypted with {used}.", problems, _POLICY)
    found = expiring(ask("get_bucket_lifecycle_configuration", "Rules", ()))
    wanted = expiring(buckets[0].get("LifecycleConfiguration", {}).get("Rules", ()) if buckets else ())
    seen = ", ".join(f"{prefix} after {days} days" for prefix, days in found) or "nothing"
    problems = dict.fromkeys(lifecycle_problems(found, wanted), True)
    remedy = f"{_AGAIN[:-1]}, and remove rules of your own that cover its prefixes."
    yield judged("bucket-lifecycle", f"expire: {seen}; nothing that a run or its continuation needs.", problems, remedy)


def policy_problems(policy: Mapping[str, Any], deployed: Sequence[Mapping[str, Any]] | None) -> list[str]:
    """What of the deployed statements the bucket's policy does not have; None: the bucket is not the stack's."""
    if deployed is None:
        return [f"the bucket's policy does not name {word}" for word in _OF_POLICY if word not in json.dumps(policy)]

    def form(item: Mapping[str, Any]) -> str:
        # S3 may write a list of one as a text, members in an order of its own, and numbers as texts.
        listed = {key: sorted(many(item.get(key, []))) for key in ("Action", "Resource")}
        return json.dumps({**item, **listed}, sort_keys=True).replace('"', "")

    found = {form(item) for item in policy.get("Statement", ())}
    lost = [item for item in deployed if form(item) not in found]
    return [f"its policy has not, or has changed, {item.get('Sid') or json.dumps(item['Condition'])}" for item in lost]


def expiring(rules: Iterable[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """Prefix and days of the rules, in the form of S3 or of a template, by which objects expire; 0: on a date."""
    found = []
    for rule in rules:
        chosen = {**rule, **rule.get("Filter", {}), **rule.get("Filter", {}).get("And", {})}
        expiration = rule.get("Expiration", {})
        days = expiration.get("Days") or rule.get("ExpirationInDays")
        tagged = chosen.get("Tag") or chosen.get("Tags")  # no object of a run has tags
        if rule["Status"] == "Enabled" and (days or expiration.get("Date")) and not tagged:
            found.append((chosen.get("Prefix") or "", int(days or 0)))
    return found


def lifecycle_problems(found: Sequence[tuple[str, int]], deployed: Iterable[tuple[str, int]]) -> list[str]:
    """Rules that are not there, and others that let expire what a run may need."""
    problems = [
        f"the deployed rule for {rule[0]} is not there or was changed" for rule in deployed if rule not in found
    ]
    for prefix, days in found:
        needed = KEPT if days >= EXPIRY_DAYS else (*KEPT, SOURCE, PACKAGES, RECIPES)
        if any(part.startswith(prefix) or prefix.startswith(part) for part in needed):
            when = f"after {days} days, which is too early" if days else "on a date, whatever their age"
            problems.append(f"objects under {prefix or 'every prefix'} expire {when}")
    return problems


def rules(account: Account) -> Iterator[Check]:
    """Every rule is enabled and calls what the template says."""
    deployed = account.template.of_type("AWS::Events::Rule")
    problems, remedies = dict[str, object](), list[str]()
    for _, physical, wanted in deployed:
        # CloudFormation names a rule on another bus `bus|rule`.
        name, bus = physical.rpartition("|")[2], wanted.get("EventBusName", "default")
        state = account.ask("events", "describe_rule", Name=name, EventBusName=bus).get("State", "missing").lower()
        targets = account.ask("events", "list_targets_by_rule", Rule=name, EventBusName=bus).get("Targets", ())
        lost = {target["Arn"] for target in wanted.get("Targets", ())} - {target["Arn"] for target in targets}
        problems[f"the rule {name} is {state} ({wanted.get('Description', name)})"] = state != "enabled"
        problems[f"the rule {name} no longer calls {', '.join(sorted(lost))}"] = lost
        remedies += [f"aws events enable-rule --name {name}"] if state == "disabled" else [_AGAIN] if lost else []
    problems["the stack has no rule, so no end of a job reaches it"] = not deployed
    seen = f"all {len(deployed)} rules are enabled and call their functions."
    yield judged("event-rules", seen, problems, " ".join(dict.fromkeys(remedies)))


def functions(account: Account) -> Iterator[Check]:
    """Every function is ready. One that was not called for weeks is Inactive; the next call wakes it."""
    names = [name for _, name, _ in account.template.of_type("AWS::Lambda::Function")]
    problems: dict[str, object] = {"the stack has no function": not names}
    for name in names:
        found = account.ask("lambda", "get_function_configuration", FunctionName=name)
        state, update = found.get("State", "missing"), found.get("LastUpdateStatus")
        reason = found.get("StateReason") or found.get("LastUpdateStatusReason") or "no reason"
        is_ready = state in {"Active", "Inactive"} and update == "Successful"
        problems[f"{name} is {state}, its last update {update}: {reason}"] = not is_ready
    remedy = "Wait a minute for an update that is running; else deploy the stack again."
    yield judged("functions", f"all {len(names)} functions are ready.", problems, remedy)


def dead_letters(account: Account) -> Iterator[Check]:
    """No event has failed to be handled."""
    url, name = account.output("DeadLetterQueueUrl"), "ApproximateNumberOfMessages"
    answer = account.ask("sqs", "get_queue_attributes", QueueUrl=url, AttributeNames=[name])
    count = int(answer["Attributes"][name])
    problems = {f"about {count} events could not be delivered or handled": count}
    yield judged("dead-letters", "the queue is empty.", problems, "See them with `muster deadletters list`.")


def subscriptions(account: Account) -> Iterator[Check]:
    """How many people are notified: for information."""
    topic = account.output("NotificationTopicArn")
    found = account.listed("sns", "list_subscriptions_by_topic", "Subscriptions", TopicArn=topic)
    waiting = sum(not item["SubscriptionArn"].startswith("arn:") for item in found)
    seen = f"{len(found)} subscriptions to the ends of runs, of which {waiting} wait for a confirmation."
    yield check("subscriptions", CheckOutcome.INFO, seen)


def orphans(account: Account, young_seconds: float = YOUNG_SECONDS) -> Iterator[Check]:
    """No training job runs although its run has ended, except those younger than `young_seconds`; stops nothing."""
    # Jobs before executions: a run that starts in between has no job in the list.
    active = [job for job in account.answer("sagemaker", account.cloud.jobs.active) if not job.is_stopping]
    live = account.answer("stepfunctions", account.cloud.executions.live_runs)
    found = suspects(active, live, datetime.now(UTC), young_seconds)
    tags = account.cloud.jobs.tags
    own = [str(job.name) for job in found if is_own(job.name, account.answer("sagemaker", partial(tags, job.arn)))]
    foreign = ", ".join(str(job.name) for job in found if str(job.name) not in own)
    seen = "no training job of the stack is running whose run has ended."
    seen += f" Not created by Muster, so never stopped by it: {foreign}." if foreign else ""
    remedy = "The stack's next sweep stops them; if it does not, see its dead letters."
    yield judged("orphans", seen, {f"{', '.join(own)} still run although their runs have ended": own}, remedy)


def quotas(account: Account, needs: Iterable[Quota], elsewhere: Sequence[str]) -> Iterator[Check]:
    """One check for each quota that a run needs here; Service Quotas answers 100 to a call, some twenty calls."""
    listed = account.listed("service-quotas", "list_service_quotas", "Quotas", ServiceCode="sagemaker")
    granted = {item["QuotaName"]: item for item in listed}
    for need in needs:
        if need.name not in granted:
            seen = f"Service Quotas has no quota named {need.name!r}: the type may not exist in this region."
            yield check("quota", CheckOutcome.UNCHECKED, seen, "Choose another instance type, or look in its console.")
            continue
        value, code = granted[need.name]["Value"], granted[need.name]["QuotaCode"]
        remedy = (
            "Ask for more: aws service-quotas request-service-quota-increase --service-code sagemaker "
            f"--quota-code {code} --desired-value {need.instances + need.for_fallbacks}"
        )
        seen = f"{need.name}: {need.instances} needed, {value:g} granted"
        yield judged("quota", f"{seen}.", {seen: value < need.instances}, remedy)
    if elsewhere:
        seen = f"the quotas of {', '.join(elsewhere)} are not checked, only those of home."
        remedy = "`muster plan --deployed` shows what the spec needs there, and what is granted in this account."
        yield check("quota", CheckOutcome.UNCHECKED, seen, remedy)


def route(account: Account) -> Iterator[Check]:
    """Whether the replicas' way to S3 costs money by the gigabyte."""
    if vpc := account.defaults.vpc_config:
        routes = account.answer("ec2", lambda: read_routes(account.client("ec2"), vpc.subnets[0], account.region))
        warning = nat_warning(vpc.subnets, routes)
        seen = "no NAT gateway is on the replicas' way to S3."
        yield check("route-to-s3", CheckOutcome.INFO if warning else CheckOutcome.OK, warning or seen)


def prices(account: Account, instance_type: str) -> Iterator[Check]:
    """The filter of the Price List API finds the price of training on the type, and it is near the shipped one."""
    table = account.answer("pricing", lambda: listed_prices(account.session, account.region, [instance_type]))
    found, shipped = (prices.usd_per_hour.get(instance_type) for prices in (table, SHIPPED_PRICES))
    seen = f"{instance_type} costs ${found or 0:g} an hour in {account.region}"
    far = found and shipped and not shipped / _PRICE_FACTOR <= found <= shipped * _PRICE_FACTOR
    problems = {
        f"GetProducts has no price for training on {instance_type} in {account.region}": found is None,
        f"{seen}, and ${shipped or 0:g} in {SHIPPED_PRICES.region}": far,
    }
    remedy = "`muster plan --deployed` cannot price runs here: the filter may have found another product."
    yield judged("prices", f"{seen}.", problems, remedy)


def image(account: Account, uri: str) -> Iterator[Check]:
    """The image exists in the stack's region."""
    if (found := EcrImage.parse(uri)) is None:
        yield check("image", CheckOutcome.INFO, f"{uri} is not in ECR; whether it can be pulled shows in the run.")
        return
    tag = found.version or ":latest"
    wanted = {"imageDigest" if tag.startswith("@") else "imageTag": tag[1:]}
    place = {"registryId": found.account, "repositoryName": found.repository}
    here = found.region == account.region
    answer = account.ask("ecr", "batch_get_image", **place, imageIds=[wanted]) if here else {}
    problems = {
        f"{uri} is in {found.region}; SageMaker pulls images of its own region only": not here,
        f"{uri} cannot be found: {answer.get('failures') or 'no such repository'}": here and not answer.get("images"),
    }
    remedy = "Name an image that is in this region: --image, or the stack's default image."
    yield judged("image", f"{uri} is there.", problems, remedy)


FREE: dict[tuple[str, ...], Callable[[Account], Iterator[Check]]] = {
    ("credentials", "stack", "version"): stack,
    ("bucket-place", "bucket-policy", "bucket-privacy", "bucket-encryption", "bucket-lifecycle"): bucket,
    ("event-rules",): rules,
    ("functions",): functions,
    ("dead-letters",): dead_letters,
    ("subscriptions",): subscriptions,
    ("orphans",): orphans,
}
"""What is asked of every stack, by the names of the checks."""
