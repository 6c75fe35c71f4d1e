"""How events reach the stack: rules, dead letters, and the people who are notified."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from muster.client.verify.asking import allowed
from muster.client.verify.services import Account
from muster.client.verify.verification import Check, failed, info, judged, ok

RULES, DEAD_LETTERS, SUBSCRIPTIONS = "event-rules", "dead-letters", "subscriptions"

_DEFAULT_BUS = "default"


@dataclass(frozen=True)
class Rule:
    """One rule of the stack, as EventBridge has it."""

    name: str
    description: str
    enabled: bool
    targets: tuple[str, ...]
    expected: tuple[str, ...]
    """The targets that the template sets."""


def gather_rules(account: Account) -> tuple[Rule, ...]:
    """Two calls for each rule."""
    return tuple(_rule(account, name, wanted) for _, name, wanted in account.template.of_type("AWS::Events::Rule"))


def _rule(account: Account, physical: str, wanted: dict[str, Any]) -> Rule:
    # CloudFormation names a rule on another bus `bus|rule`.
    name = physical.rpartition("|")[2]
    bus = wanted.get("EventBusName", _DEFAULT_BUS)
    with allowed("events:DescribeRule", f"arn:*:events:*:*:rule/{name}"):
        found = account.events.describe_rule(Name=name, EventBusName=bus)
    with allowed("events:ListTargetsByRule", f"arn:*:events:*:*:rule/{name}"):
        targets = account.events.list_targets_by_rule(Rule=name, EventBusName=bus)["Targets"]
    return Rule(
        name=name,
        description=wanted.get("Description", name),
        enabled=found.get("State") == "ENABLED",
        targets=tuple(target["Arn"] for target in targets),
        expected=tuple(target["Arn"] for target in wanted.get("Targets", [])),
    )


def judge_rules(rules: tuple[Rule, ...]) -> Iterator[Check]:
    """All rules together."""
    problems, remedies = [], []
    for rule in rules:
        if not rule.enabled:
            problems.append(f"the rule {rule.name} is disabled ({rule.description})")
            remedies.append(f"aws events enable-rule --name {rule.name}")
        if missing := [arn for arn in rule.expected if arn not in rule.targets]:
            problems.append(f"the rule {rule.name} no longer calls {', '.join(missing)}")
            remedies.append("Deploy the stack again.")
    if not rules:
        problems.append("the stack has no rule, so no end of a job reaches it")
    seen = f"all {len(rules)} rules are enabled and call their functions."
    yield judged(RULES, problems, seen, " ".join(dict.fromkeys(remedies)))


def gather_dead_letters(account: Account) -> tuple[str, int]:
    """The queue's URL and how many messages are in it."""
    url = account.output("DeadLetterQueueUrl")
    with allowed("sqs:GetQueueAttributes", f"arn:*:sqs:*:*:{url.rpartition('/')[2]}"):
        answer = account.other("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
    return url, int(answer["Attributes"]["ApproximateNumberOfMessages"])


def judge_dead_letters(facts: tuple[str, int]) -> Iterator[Check]:
    """No event has failed to be handled."""
    _, count = facts
    if count == 0:
        yield ok(DEAD_LETTERS, "the queue is empty.")
        return
    seen = f"about {count} events could not be delivered or handled."
    yield failed(DEAD_LETTERS, seen, "See them with `muster deadletters list`.")


def gather_subscriptions(account: Account) -> tuple[str, ...]:
    """The subscriptions of the topic for people: their protocols, or that they wait for a confirmation."""
    topic = account.output("NotificationTopicArn")
    with allowed("sns:ListSubscriptionsByTopic", topic):
        pages = account.sns.get_paginator("list_subscriptions_by_topic").paginate(TopicArn=topic)
        found = [item for page in pages for item in page["Subscriptions"]]
    return tuple(item["SubscriptionArn"] for item in found)


def judge_subscriptions(arns: tuple[str, ...]) -> Iterator[Check]:
    """How many people are notified: for information."""
    waiting = sum(not arn.startswith("arn:") for arn in arns)
    if waiting:
        seen = f"{len(arns)} subscriptions, of which {waiting} wait for a confirmation and get nothing."
        yield info(SUBSCRIPTIONS, seen, "Confirm them: the message from AWS has the link.")
        return
    yield info(SUBSCRIPTIONS, f"{len(arns)} confirmed subscriptions to the ends of runs.")
